"""@FILE@_model.py: the model @ID@ by ctypes, from @FILE@.so beside this file.

    from @FILE@_model import Trainer
    model = Trainer()
    model.inputs["x"][:] = batch
    loss = model.step()

Arrays are views of the model's memory: of NumPy if it is installed, else of ctypes, flat. They are
valid as long as the trainer that they come from.
"""
import ctypes
import os

try:
    import numpy
except ImportError:
    numpy = None

_lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "@FILE@.so"))
_kinds = ["inputs", "outputs", "parameters", "gradients", "frozen", "buffers", "state"]
_types = [  # enum amos_type: ctypes, NumPy; 16-bit floats as their bits where there is no such type
    (ctypes.c_double, "f8"), (ctypes.c_float, "f4"), (ctypes.c_uint16, "f2"), (ctypes.c_uint16, "u2"),
    (ctypes.c_int64, "i8"), (ctypes.c_int32, "i4"), (ctypes.c_int16, "i2"), (ctypes.c_int8, "i1"),
    (ctypes.c_uint64, "u8"), (ctypes.c_uint32, "u4"), (ctypes.c_uint16, "u2"), (ctypes.c_uint8, "u1"),
    (ctypes.c_bool, "?")]
_int, _double = ctypes.c_int, ctypes.c_double
_pointer, _i64, _text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
_array, _loss = [_pointer, _int, _i64], [_pointer, ctypes.POINTER(_double)]
_i64s, _texts = ctypes.POINTER(_i64), ctypes.POINTER(_text)
for _name, _result, _arguments in [
        ("error", _text, []), ("open", _int, [_pointer] * 3), ("close", None, [_pointer]),
        ("count", _i64, [_pointer, _int]), ("find", _i64, [_pointer, _int, _text]), ("name", _text, _array),
        ("type", _int, _array), ("rank", _i64, _array), ("shape", _i64s, _array), ("bytes", _i64, _array),
        ("values", _pointer, _array), ("block", _pointer, [_pointer, _int, _i64s]),
        ("set_input", _int, [_pointer, _i64, _pointer]), ("output_shape", None, [_pointer, _i64, _i64s]),
        ("set_batch", _int, [_pointer, _i64]), ("forward", _int, [_pointer]), ("evaluate", _int, _loss),
        ("step", _int, _loss), ("gradient", _int, _loss), ("update", _int, [_pointer]),
        ("steps", _i64, [_pointer]), ("rate", _double, [_pointer]), ("set_rate", _int, [_pointer, _double]),
        ("set_steps", _int, [_pointer, _i64]), ("metric", _double, [_pointer, _text]),
        ("save", _int, [_pointer, _text]), ("load", _int, [_pointer, _text]),
        ("checkpoint_bytes", _i64, [_pointer]), ("store", _int, [_pointer, _pointer, _i64]),
        ("restore", _int, [_pointer, _pointer, _i64]), ("export_onnx", _int, [_pointer, _text]),
        ("onnx_bytes", _i64, [_pointer]), ("store_onnx", _int, [_pointer, _pointer, _i64]),
        ("fit", _int, [_pointer] * 2), ("main", _int, [_pointer, _int, _texts])]:
    _function = getattr(_lib, "amos_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


class Error(Exception):
    """A failed call; `status` is an amos_status."""

    def __init__(self, status):
        super().__init__(_lib.amos_error().decode())
        self.status = status


class _Setup(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", _i64), ("seed", _i64), ("weights", _pointer),
                ("parallel_for", _pointer), ("context", _pointer)]


class Progress(ctypes.Structure):
    """How a training stands; not a number: there is none."""
    _fields_ = [("size", ctypes.c_size_t), ("step", _i64), ("steps", _i64)] + [(_name, ctypes.c_double) for _name in (
        "loss", "accuracy", "eval_loss", "eval_accuracy", "epochs", "samples_per_s", "seconds")]


_progress = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(Progress))


class _Training(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("options", ctypes.POINTER(_text)), ("progress", _progress), ("context", _pointer)]


def _need(status):
    if status:
        raise Error(status)


def _view(address, kind, shape):
    count = 1
    for size in shape:
        count *= size
    array = (_types[kind][0] * count).from_address(address)
    return numpy.frombuffer(array, _types[kind][1]).reshape(shape) if numpy else array


class _Arrays(dict):
    """Arrays by name. Setting one copies a number or an array of its shape into it."""

    def __setitem__(self, name, values):
        own = self[name]
        if not numpy:
            own[:] = values
        elif numpy.shape(values) not in ((), own.shape):
            raise ValueError(f"{name}: expected the shape {own.shape}, found {numpy.shape(values)}")
        else:
            numpy.copyto(own, values, casting="same_kind")


def _model():
    return ctypes.byref(ctypes.c_char.in_dll(_lib, "@ID@_model"))


def command(words):
    """Runs the trainer as a command, which prints and may exit, with these words; the first is its name.
    Returns the exit status."""
    words = [os.fsencode(word) for word in words]
    return _lib.amos_main(_model(), len(words), (_text * (len(words) + 1))(*words, None))


class Trainer:
    """An instance of the model. Its attributes inputs, outputs, parameters, gradients, frozen, buffers
    and state map names to arrays."""

    def __init__(self, threads=0, seed=0):
        self._m = _pointer()
        self._set = {}  # arrays of set_input()
        setup = _Setup(size=ctypes.sizeof(_Setup), threads=threads, seed=seed)
        _need(_lib.amos_open(_model(), ctypes.byref(setup), ctypes.byref(self._m)))
        for kind, name in enumerate(_kinds):
            setattr(self, name, self._arrays(kind))

    def __del__(self):
        if getattr(self, "_m", None):
            _lib.amos_close(self._m)

    def _arrays(self, kind):
        arrays = {}
        for i in range(_lib.amos_count(self._m, kind)):
            at = self._m, kind, i
            address = _lib.amos_values(*at)
            if address:
                shape = _lib.amos_shape(*at)[:_lib.amos_rank(*at)]
                arrays[_lib.amos_name(*at).decode()] = _view(address, _lib.amos_type(*at), shape)
        return _Arrays(arrays)

    def block(self, kind):
        """Returns all "parameters", "gradients" or "state" as one array of floats."""
        count = _i64()
        address = _lib.amos_block(self._m, _kinds.index(kind), ctypes.byref(count))
        return _view(address, 1, [count.value // 4]) if address else None

    def set_input(self, name, values):
        """Sets where calls read an input: an array like inputs[name], at a multiple of 64 bytes, which stays as
        long as it is set; None: inputs[name] itself."""
        own, address = self.inputs[name], None
        if values is not None:
            fits = (isinstance(values, numpy.ndarray) and values.dtype == own.dtype and values.shape == own.shape
                    and values.flags.c_contiguous) if numpy else type(values) is type(own)
            if not fits:
                raise TypeError(f"{name}: expected an array like inputs['{name}'], contiguous")
            address = values.ctypes.data if numpy else ctypes.addressof(values)
        _need(_lib.amos_set_input(self._m, _lib.amos_find(self._m, 0, name.encode()), address))
        self._set[name] = values

    def output_shape(self, name):
        """Returns the shape that an output had in the last call."""
        output = _lib.amos_find(self._m, 1, name.encode())
        if output < 0:
            raise KeyError(name)
        rank = _lib.amos_rank(self._m, 1, output)
        shape = (_i64 * (rank + 1))()
        _lib.amos_output_shape(self._m, output, shape)
        return shape[:rank]

    def _loss(self, call):
        loss = ctypes.c_double()
        _need(call(self._m, ctypes.byref(loss)))
        return loss.value

    def set_batch(self, samples):
        """Sets how many samples forward() and evaluate() take; 0: the largest batch. outputs are new."""
        _need(_lib.amos_set_batch(self._m, samples))
        self.outputs = self._arrays(_kinds.index("outputs"))

    def forward(self):
        _need(_lib.amos_forward(self._m))

    def evaluate(self):
        return self._loss(_lib.amos_evaluate)

    def step(self):
        return self._loss(_lib.amos_step)

    def gradient(self):
        return self._loss(_lib.amos_gradient)

    def update(self):
        _need(_lib.amos_update(self._m))

    def fit(self, progress=None, **options):
        """Trains on files: fit(data=["x=x.npy", "y=y.npy"], epochs=3). progress(Progress) returns true to stop."""
        words, thrown = [], []
        for name, value in options.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [name.encode(), os.fsencode(one if isinstance(one, (str, os.PathLike)) else str(one))]

        def show(_, now):
            try:
                return bool(progress and progress(now.contents))
            except BaseException as e:  # none may pass through C
                thrown.append(e)
                return 1
        call = _progress(show)
        training = _Training(ctypes.sizeof(_Training), (_text * (len(words) + 1))(*words, None), call)
        status = _lib.amos_fit(self._m, ctypes.byref(training))
        if thrown:
            raise thrown[0]
        _need(status)

    def steps(self):
        return _lib.amos_steps(self._m)

    @property
    def rate(self):
        """The factor of the step size, 1 at first."""
        return _lib.amos_rate(self._m)

    @rate.setter
    def rate(self, factor):
        _need(_lib.amos_set_rate(self._m, factor))

    def set_steps(self, n):
        """Sets the number of updates of the run, for schedules."""
        _need(_lib.amos_set_steps(self._m, n))

    def metric(self, name):
        return _lib.amos_metric(self._m, name.encode())

    def save(self, path):
        _need(_lib.amos_save(self._m, os.fsencode(path)))

    def load(self, path):
        _need(_lib.amos_load(self._m, os.fsencode(path)))

    def store(self):
        """Returns a checkpoint as bytes, for restore()."""
        to = ctypes.create_string_buffer(_lib.amos_checkpoint_bytes(self._m))
        _need(_lib.amos_store(self._m, to, len(to)))
        return to.raw

    def restore(self, checkpoint):
        _need(_lib.amos_restore(self._m, checkpoint, len(checkpoint)))

    def export_onnx(self, path):
        """Writes the trained model."""
        _need(_lib.amos_export_onnx(self._m, os.fsencode(path)))

    def onnx(self):
        """Returns the trained model as bytes."""
        to = ctypes.create_string_buffer(_lib.amos_onnx_bytes(self._m))
        _need(_lib.amos_store_onnx(self._m, to, len(to)))
        return to.raw
