// @FILE@.rs: the model @ID@ in Rust 2021, by @FILE@.o, .a or .so, without other crates.
//
//     mod @ID@ {
//         include!(concat!(env!("OUT_DIR"), "/@FILE@.rs"));
//     }
//     use @ID@::{Kind, Trainer};
//
//     let mut model = Trainer::open()?;
//     model.values_mut::<f32>(Kind::Inputs, "x")?.copy_from_slice(&batch);
//     let loss = model.step()?;
//
// Arrays are slices of the model's memory: they borrow the trainer, so none is left when a call changes it. A trainer moves
// between threads, and one at a time uses it. docs/building.md of amosc has the build script.
use std::any::Any;
use std::ffi::{c_void, CStr, CString, OsStr};
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::{fmt, path::Path, ptr, slice};

/// A failed call: an amos_status, and what is wrong.
#[allow(dead_code)]
#[derive(Debug, Clone)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Kinds of arrays: amos_kind.
#[allow(dead_code)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Inputs,
    Outputs,
    Parameters,
    Gradients,
    Frozen,
    Buffers,
    State,
}

/// A type of elements. f16 and bf16 are the bits of a u16, booleans a u8 that is 0 or 1.
///
/// # Safety
/// The types are those of amos_type that have the size of Self and in which all bits are valid.
pub unsafe trait Element: Copy {
    const TYPES: &'static [c_int];
}

macro_rules! elements {
    ($($name:ty: $($number:literal)*;)*) => { $(unsafe impl Element for $name {
        const TYPES: &'static [c_int] = &[$($number),*];
    })* };
}
elements! { f64: 0; f32: 1; i64: 4; i32: 5; i16: 6; i8: 7; u64: 8; u32: 9; u16: 2 3 10; u8: 11 12; }

/// How a trainer is opened; zeros are the defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    /// 0: as many as cores that this process may use.
    pub threads: i64,
    /// Of dropout and other random numbers.
    pub seed: i64,
}

#[repr(C)]
struct RawSetup {
    size: usize,
    threads: i64,
    seed: i64,
    callbacks: [*const c_void; 3],
}

/// How a training stands. NaN: there is none.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    size: usize,
    /// Updates made, and in all.
    pub step: i64,
    pub steps: i64,
    /// Of the batches since the last call.
    pub loss: f64,
    pub accuracy: f64,
    /// Of the last evaluation of held-out data.
    pub eval_loss: f64,
    pub eval_accuracy: f64,
    /// Of the training data, so far.
    pub epochs: f64,
    pub samples_per_s: f64,
    pub seconds: f64,
}

#[repr(C)]
struct RawTraining {
    size: usize,
    options: *const *const c_char,
    progress: unsafe extern "C" fn(*mut c_void, *const Progress) -> c_int,
    context: *mut c_void,
}

/// What fit() calls, and how it panicked: no panic may pass through C.
struct Watch<'a> {
    call: &'a mut dyn FnMut(&Progress) -> bool,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn show(context: *mut c_void, now: *const Progress) -> c_int {
    let watch = &mut *context.cast::<Watch>();
    let call = AssertUnwindSafe(|| (watch.call)(&*now));
    match catch_unwind(call) {
        Ok(stops) => stops as c_int,
        Err(panic) => {
            watch.panic = Some(panic);
            1
        }
    }
}

#[repr(C)]
struct Model([u8; 0]);

extern "C" {
    #[link_name = "@ID@_model"]
    static MODEL: Model;
    fn amos_error() -> *const c_char;
    fn amos_open(model: *const c_void, setup: *const c_void, to: *mut *mut c_void) -> c_int;
    fn amos_close(m: *mut c_void);
    fn amos_count(m: *const c_void, kind: c_int) -> i64;
    fn amos_find(m: *const c_void, kind: c_int, name: *const c_char) -> i64;
    fn amos_name(m: *const c_void, kind: c_int, i: i64) -> *const c_char;
    fn amos_type(m: *const c_void, kind: c_int, i: i64) -> c_int;
    fn amos_rank(m: *const c_void, kind: c_int, i: i64) -> i64;
    fn amos_shape(m: *const c_void, kind: c_int, i: i64) -> *const i64;
    fn amos_bytes(m: *const c_void, kind: c_int, i: i64) -> i64;
    fn amos_values(m: *const c_void, kind: c_int, i: i64) -> *mut c_void;
    fn amos_block(m: *const c_void, kind: c_int, bytes: *mut i64) -> *mut c_void;
    fn amos_set_input(m: *mut c_void, i: i64, values: *const c_void) -> c_int;
    fn amos_output_shape(m: *const c_void, i: i64, shape: *mut i64);
    fn amos_forward(m: *mut c_void) -> c_int;
    fn amos_evaluate(m: *mut c_void, loss: *mut f64) -> c_int;
    fn amos_step(m: *mut c_void, loss: *mut f64) -> c_int;
    fn amos_gradient(m: *mut c_void, loss: *mut f64) -> c_int;
    fn amos_update(m: *mut c_void) -> c_int;
    fn amos_steps(m: *const c_void) -> i64;
    fn amos_rate(m: *const c_void) -> f64;
    fn amos_set_rate(m: *mut c_void, factor: f64) -> c_int;
    fn amos_set_steps(m: *mut c_void, n: i64) -> c_int;
    fn amos_set_batch(m: *mut c_void, n: i64) -> c_int;
    fn amos_metric(m: *const c_void, name: *const c_char) -> f64;
    fn amos_save(m: *const c_void, path: *const c_char) -> c_int;
    fn amos_load(m: *mut c_void, path: *const c_char) -> c_int;
    fn amos_checkpoint_bytes(m: *const c_void) -> i64;
    fn amos_store(m: *const c_void, to: *mut c_void, bytes: i64) -> c_int;
    fn amos_restore(m: *mut c_void, from: *const c_void, bytes: i64) -> c_int;
    fn amos_export_onnx(m: *const c_void, path: *const c_char) -> c_int;
    fn amos_onnx_bytes(m: *const c_void) -> i64;
    fn amos_store_onnx(m: *const c_void, to: *mut c_void, bytes: i64) -> c_int;
    fn amos_fit(m: *mut c_void, training: *const c_void) -> c_int;
    fn amos_main(model: *const c_void, argc: c_int, argv: *const *const c_char) -> c_int;
}

fn need(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let message = unsafe { CStr::from_ptr(amos_error()) }.to_string_lossy().into_owned();
    Err(Error { status, message })
}

fn invalid<T>(message: String) -> Result<T, Error> {
    Err(Error { status: 1, message })
}

fn c_string(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.as_bytes()).or_else(|_| invalid(format!("{:?} contains a zero byte", text)))
}

#[allow(unused_unsafe)] // until Rust 1.82, the address of a static is unsafe to take
fn model() -> *const c_void {
    unsafe { ptr::addr_of!(MODEL).cast() }
}

/// Runs the trainer as a command, which prints and may exit, with these words; the first is its name. Returns the exit status.
#[allow(dead_code)]
pub fn command<I: IntoIterator<Item = std::ffi::OsString>>(words: I) -> Result<i32, Error> {
    let words = words.into_iter().map(|word| c_string(&word)).collect::<Result<Vec<_>, _>>()?;
    let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    argv.push(ptr::null());
    Ok(unsafe { amos_main(model(), words.len() as c_int, argv.as_ptr()) })
}

/// An instance of the model.
pub struct Trainer {
    m: *mut c_void,
}

unsafe impl Send for Trainer {}

impl Drop for Trainer {
    fn drop(&mut self) {
        unsafe { amos_close(self.m) }
    }
}

#[allow(dead_code)]
impl Trainer {
    pub fn open() -> Result<Trainer, Error> {
        Trainer::open_with(Setup::default())
    }

    pub fn open_with(setup: Setup) -> Result<Trainer, Error> {
        let raw = RawSetup {
            size: std::mem::size_of::<RawSetup>(),
            threads: setup.threads,
            seed: setup.seed,
            callbacks: [ptr::null(); 3],
        };
        let mut m = ptr::null_mut();
        need(unsafe { amos_open(model(), (&raw as *const RawSetup).cast(), &mut m) })?;
        Ok(Trainer { m })
    }

    fn number(&self, kind: Kind, name: &str) -> Result<i64, Error> {
        let text = c_string(OsStr::new(name))?;
        match unsafe { amos_find(self.m, kind as c_int, text.as_ptr()) } {
            -1 => invalid(format!("no array '{}' of this kind", name)),
            i => Ok(i),
        }
    }

    fn place<T: Element>(&self, kind: Kind, name: &str) -> Result<(*mut T, usize), Error> {
        let i = self.number(kind, name)?;
        let (data, number, bytes) = unsafe {
            let kind = kind as c_int;
            (amos_values(self.m, kind, i), amos_type(self.m, kind, i), amos_bytes(self.m, kind, i))
        };
        if data.is_null() || !T::TYPES.contains(&number) {
            return invalid(format!("'{}' has elements of another type, or none", name));
        }
        Ok((data.cast(), bytes as usize / std::mem::size_of::<T>()))
    }

    fn block_place(&self, kind: Kind) -> Result<(*mut f32, usize), Error> {
        let mut bytes = 0;
        let data = unsafe { amos_block(self.m, kind as c_int, &mut bytes) };
        if data.is_null() {
            return invalid(format!("{:?} are not one block", kind));
        }
        Ok((data.cast(), bytes as usize / 4))
    }

    /// The elements of an array, row major.
    pub fn values<T: Element>(&self, kind: Kind, name: &str) -> Result<&[T], Error> {
        let (data, count) = self.place(kind, name)?;
        Ok(unsafe { slice::from_raw_parts(data, count) })
    }

    pub fn values_mut<T: Element>(&mut self, kind: Kind, name: &str) -> Result<&mut [T], Error> {
        let (data, count) = self.place(kind, name)?;
        Ok(unsafe { slice::from_raw_parts_mut(data, count) })
    }

    /// All parameters, gradients or state.
    pub fn block(&self, kind: Kind) -> Result<&[f32], Error> {
        let (data, count) = self.block_place(kind)?;
        Ok(unsafe { slice::from_raw_parts(data, count) })
    }

    pub fn block_mut(&mut self, kind: Kind) -> Result<&mut [f32], Error> {
        let (data, count) = self.block_place(kind)?;
        Ok(unsafe { slice::from_raw_parts_mut(data, count) })
    }

    /// All parameters and, at the same places, their gradients: for an optimizer of one's own.
    pub fn parameters_and_gradients(&mut self) -> Result<(&mut [f32], &mut [f32]), Error> {
        let (p, count) = self.block_place(Kind::Parameters)?;
        let (g, gradients) = self.block_place(Kind::Gradients)?;
        Ok(unsafe { (slice::from_raw_parts_mut(p, count), slice::from_raw_parts_mut(g, gradients)) })
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        let name = |i| unsafe { CStr::from_ptr(amos_name(self.m, kind as c_int, i)) };
        let count = unsafe { amos_count(self.m, kind as c_int) };
        (0..count).map(|i| name(i).to_string_lossy().into_owned()).collect()
    }

    pub fn shape(&self, kind: Kind, name: &str) -> Result<&[i64], Error> {
        let i = self.number(kind, name)?;
        let rank = unsafe { amos_rank(self.m, kind as c_int, i) } as usize;
        Ok(match rank {
            0 => &[],
            _ => unsafe { slice::from_raw_parts(amos_shape(self.m, kind as c_int, i), rank) },
        })
    }

    /// Sets where calls read an input: these elements, at a multiple of 64 bytes; None: the trainer's own.
    ///
    /// # Safety
    /// The elements stay until another setting or the end of the trainer, and no call overlaps with a change of them.
    pub unsafe fn set_input<T: Element>(&mut self, name: &str, values: Option<&[T]>) -> Result<(), Error> {
        let (_, count) = self.place::<T>(Kind::Inputs, name)?;
        let at = values.map_or(ptr::null(), |values| values.as_ptr());
        if values.map_or(false, |values| values.len() != count) {
            return invalid(format!("'{}': expected {} elements", name, count));
        }
        need(amos_set_input(self.m, self.number(Kind::Inputs, name)?, at.cast()))
    }

    /// The shape that an output had in the last call.
    pub fn output_shape(&self, name: &str) -> Result<Vec<i64>, Error> {
        let mut shape = self.shape(Kind::Outputs, name)?.to_vec();
        unsafe { amos_output_shape(self.m, self.number(Kind::Outputs, name)?, shape.as_mut_ptr()) };
        Ok(shape)
    }

    pub fn forward(&mut self) -> Result<(), Error> {
        need(unsafe { amos_forward(self.m) })
    }

    fn loss_of(&mut self, call: unsafe extern "C" fn(*mut c_void, *mut f64) -> c_int) -> Result<f64, Error> {
        let mut loss = 0.0;
        need(unsafe { call(self.m, &mut loss) })?;
        Ok(loss)
    }

    pub fn evaluate(&mut self) -> Result<f64, Error> {
        self.loss_of(amos_evaluate)
    }

    pub fn step(&mut self) -> Result<f64, Error> {
        self.loss_of(amos_step)
    }

    pub fn gradient(&mut self) -> Result<f64, Error> {
        self.loss_of(amos_gradient)
    }

    pub fn update(&mut self) -> Result<(), Error> {
        need(unsafe { amos_update(self.m) })
    }

    /// Trains on files, by names and values of options: fit(&[("data", "train.npz"), ("epochs", "3")], |_| false).
    /// `progress` returns true to stop.
    pub fn fit<P>(&mut self, options: &[(&str, &str)], mut progress: P) -> Result<(), Error>
    where
        P: FnMut(&Progress) -> bool,
    {
        let words = options.iter().flat_map(|(name, value)| [*name, *value]);
        let words = words.map(|word| c_string(OsStr::new(word))).collect::<Result<Vec<_>, _>>()?;
        let mut list: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        list.push(ptr::null());
        let mut watch = Watch { call: &mut progress, panic: None };
        let training = RawTraining {
            size: std::mem::size_of::<RawTraining>(),
            options: list.as_ptr(),
            progress: show,
            context: (&mut watch as *mut Watch).cast(),
        };
        let status = unsafe { amos_fit(self.m, (&training as *const RawTraining).cast()) };
        if let Some(panic) = watch.panic {
            resume_unwind(panic);
        }
        need(status)
    }

    pub fn steps(&self) -> i64 {
        unsafe { amos_steps(self.m) }
    }

    /// The factor of the step size, 1 at first.
    pub fn rate(&self) -> f64 {
        unsafe { amos_rate(self.m) }
    }

    pub fn set_rate(&mut self, factor: f64) -> Result<(), Error> {
        need(unsafe { amos_set_rate(self.m, factor) })
    }

    /// Sets the number of updates of the run, for schedules.
    pub fn set_steps(&mut self, n: i64) -> Result<(), Error> {
        need(unsafe { amos_set_steps(self.m, n) })
    }

    /// Sets how many samples forward() and evaluate() take; 0: the largest batch. Outputs are then
    /// other arrays.
    pub fn set_batch(&mut self, samples: i64) -> Result<(), Error> {
        need(unsafe { amos_set_batch(self.m, samples) })
    }

    /// A metric of the last call, if there is one of this name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = CString::new(name).ok()?;
        Some(unsafe { amos_metric(self.m, text.as_ptr()) }).filter(|metric| !metric.is_nan())
    }

    pub fn save<P: AsRef<Path>>(&self, path: P) -> Result<(), Error> {
        need(unsafe { amos_save(self.m, c_string(path.as_ref().as_os_str())?.as_ptr()) })
    }

    pub fn load<P: AsRef<Path>>(&mut self, path: P) -> Result<(), Error> {
        need(unsafe { amos_load(self.m, c_string(path.as_ref().as_os_str())?.as_ptr()) })
    }

    /// A checkpoint, for restore().
    pub fn store(&self) -> Result<Vec<u8>, Error> {
        let mut to = vec![0; unsafe { amos_checkpoint_bytes(self.m) } as usize];
        need(unsafe { amos_store(self.m, to.as_mut_ptr().cast(), to.len() as i64) })?;
        Ok(to)
    }

    pub fn restore(&mut self, from: &[u8]) -> Result<(), Error> {
        need(unsafe { amos_restore(self.m, from.as_ptr().cast(), from.len() as i64) })
    }

    /// Writes the trained model.
    pub fn export_onnx<P: AsRef<Path>>(&self, path: P) -> Result<(), Error> {
        need(unsafe { amos_export_onnx(self.m, c_string(path.as_ref().as_os_str())?.as_ptr()) })
    }

    /// The trained model, as the bytes of a file.
    pub fn onnx(&self) -> Result<Vec<u8>, Error> {
        let mut to = vec![0; unsafe { amos_onnx_bytes(self.m) } as usize];
        need(unsafe { amos_store_onnx(self.m, to.as_mut_ptr().cast(), to.len() as i64) })?;
        Ok(to)
    }
}
