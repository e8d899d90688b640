// outputs.rs: two models by the Rust modules that amosc build writes, one of them as if included by a build script.
#[path = "first.rs"]
mod first;
mod second {
    include!("second.rs");
}
use first::{Error, Kind, Setup, Trainer};

#[repr(align(64))]
struct Lines([f32; 16]);

fn fill(m: &mut Trainer) -> Result<(), Error> {
    for (i, x) in m.values_mut::<f32>(Kind::Inputs, "x")?.iter_mut().enumerate() {
        *x = (i % 5) as f32 - 2.0;
    }
    m.values_mut::<i64>(Kind::Inputs, "labels")?.copy_from_slice(&[1, 2]);
    Ok(())
}

fn check() -> Result<(), Error> {
    let mut a = Trainer::open()?;
    let mut b = Trainer::open_with(Setup { threads: 1, ..Setup::default() })?;
    let mut other = second::Trainer::open().expect("second");
    fill(&mut a)?;
    fill(&mut b)?;
    for _ in 0..5 {
        let loss = a.step()?;
        assert_eq!(b.gradient()?, loss);
        assert_eq!(a.metric("loss"), Some(loss));
        b.update()?;
    }
    assert!(a.metric("nothing").is_none() && a.steps() == 5);
    let kept = a.store()?;
    assert!(kept == b.store()?);

    // A trainer goes to another thread, and comes back.
    let mut b = std::thread::spawn(move || b.step().map(|_| b)).join().unwrap()?;
    a.step()?;
    assert!(a.store()? == b.store()? && a.store()? != kept);
    a.restore(&kept)?;
    a.save("rust.ckpt")?;
    a.export_onnx("rust.onnx")?;
    assert!(a.onnx()? == std::fs::read("rust.onnx").unwrap());
    b.load("rust.ckpt")?;
    assert!(b.store()? == kept);

    let (p, g) = a.parameters_and_gradients()?;
    assert!(p.len() == g.len() && p.as_ptr() != g.as_ptr());
    p[0] += 1.0;
    assert!(a.block(Kind::Parameters)? != b.block(Kind::Parameters)?);
    b.block_mut(Kind::Parameters)?[0] += 1.0;
    assert!(a.block(Kind::Parameters)? == b.block(Kind::Parameters)?);
    assert_eq!(a.names(Kind::Parameters), ["0.weight", "0.bias", "2.weight", "2.bias"]);
    assert_eq!(a.shape(Kind::Parameters, "2.bias")?, [3]);
    a.forward()?;
    assert!(a.values::<f32>(Kind::Outputs, "logits")?.len() == 6 && a.output_shape("logits")? == [2, 3]);
    assert!(other.evaluate().expect("second") > 0.0);
    assert!(other.set_batch(1).is_ok() && other.evaluate().is_ok() && other.set_batch(3).is_err());

    // An array of this program as an input, and back.
    let mut room = Lines([0.0; 16]);
    room.0[..8].copy_from_slice(a.values::<f32>(Kind::Inputs, "x")?);
    a.values_mut::<f32>(Kind::Inputs, "x")?.fill(9.0);
    unsafe { a.set_input("x", Some(&room.0[..8]))? };
    assert_eq!(a.evaluate()?, b.evaluate()?);
    unsafe {
        assert_eq!(a.set_input("x", Some(&room.0[1..9])).unwrap_err().status, 1); // not aligned
        assert!(a.set_input("x", Some(&room.0)).is_err() && a.set_input("x", Some(&[0i64; 8])).is_err());
        a.set_input::<f32>("x", None)?;
    }
    assert!(a.evaluate()? != b.evaluate()?);

    let mut steps = vec![];
    b.fit(&[("data", "data.npz"), ("steps", "5")], |now| {
        steps.push(now.step);
        steps.len() == 3
    })?;
    assert_eq!(steps, [6, 7, 8]);
    assert!(b.fit(&[("threads", "1")], |_| false).unwrap_err().status == 2 && b.steps() == 8);
    let fails = || b.fit(&[("data", "data.npz")], |_| panic!("of the callback"));
    std::panic::set_hook(Box::new(|_| {}));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).is_err() && b.steps() == 9);
    let _ = std::panic::take_hook();

    a.set_rate(0.5)?;
    assert!(a.set_steps(9).is_err()); // it has no schedule
    assert!(a.set_rate(-1.0).is_err() && a.rate() == 0.5);

    for name in ["labels", "nothing", "a\0b"] {
        assert_eq!(a.values::<f32>(Kind::Inputs, name).unwrap_err().status, 1);
    }
    assert!(a.block(Kind::Inputs).is_err());
    let error = a.load("nowhere.ckpt").unwrap_err();
    assert!(error.status == 1 && error.to_string().contains("nowhere.ckpt"));
    Ok(())
}

fn main() -> Result<(), Error> {
    check()?;
    assert_eq!(first::command(["trainer", "info"].map(Into::into))?, 0);
    assert_eq!(first::command(["trainer", "export", "nowhere.ckpt", "-o", "nowhere.onnx"].map(Into::into))?, 1);
    Ok(())
}

// What the compiler must refuse: a view that is used after a step, and two threads at a trainer.
#[cfg(stale)]
fn stale(a: &mut Trainer) -> f32 {
    let x = a.values::<f32>(Kind::Inputs, "x").unwrap();
    a.step().unwrap();
    x[0]
}
#[cfg(shared)]
fn shared() -> impl Sync {
    Trainer::open()
}
