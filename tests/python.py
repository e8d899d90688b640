"""python.py: the module amosc: reports, steps, arrays in place, checkpoints, training on files,
exports, errors.
usage: python.py MODELS     in an empty folder, with amosc on PYTHONPATH and $AMOSC_LIBRARY"""

import gc
import logging
import os
import pathlib
import pickle
import pydoc
import signal
import sys
import threading

import amosc
import numpy

models = pathlib.Path(sys.argv[1])
mlp = models / "mlp.onnx"
loss = "cross_entropy(logits, labels)"
x = numpy.sin(numpy.arange(256, dtype="f4")).reshape(64, 4)
labels = numpy.arange(64) % 3
batch = {"x": x[:8], "labels": labels[:8]}
notes = []
logging.getLogger("amosc").addHandler(logging.Handler())
logging.getLogger("amosc").handlers[0].emit = lambda record: notes.append(record.getMessage())


def fails(error, text, call, *words, **options):
    try:
        call(*words, **options)
    except error as e:
        assert text in str(e), str(e)
    else:
        raise SystemExit(f"python: no {error.__name__}: {text}")


def aligned(array, to=64):
    """Returns a copy that begins at a multiple of `to` bytes."""
    room = numpy.empty(array.nbytes + 64, "u1")
    start = -room.ctypes.data % 64 + to % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# The report.
report = amosc.eta(mlp, loss=loss)
assert (
    [row["name"] for row in report["params"]]
    == ["0.weight", "0.bias", "2.weight", "2.bias"]
    == list(report.parameters)
)
assert (
    report.parameters["0.weight"]["eta"] == 0.5
    and "sqrt(1/4)" in repr(report)
    and "<td" in report._repr_html_()
)
assert amosc.eta(mlp, loss=loss, eta={"0.weight": "0.25"}).parameters["0.weight"]["eta"] == 0.25
pathlib.Path("report.json").write_text(report.json())
assert amosc.eta("report.json")["params"] == report["params"]
assert amosc.eta(mlp, loss=loss, data=batch)["inputs"][0]["by"] == "data"
fails(amosc.UsageError, "--epochs: does nothing", amosc.eta, mlp, epochs=3)

# Compiled at once, or at the first batch: the same.
given = amosc.compile(mlp, loss=loss, bind={"batch": 8}, seed=1)
model = amosc.compile(mlp, loss=loss, seed=1)
fails(amosc.UsageError, "first batch; open dimensions: batch", lambda: model.parameters)
assert "batch open" in repr(model)
first = model.step(batch)
assert 0 < first == given.step(x=x[:8], labels=labels[:8]) == model.metric("loss")
assert (
    repr(model)
    == "amosc.Model of mlp.onnx: inputs x f32[8,4], labels i64[8]; 67 parameters, 1 updates"
), repr(model)
assert list(model.parameters) == list(model.gradients) == list(report.parameters)
assert model.report.parameters["0.weight"]["eta"] == 0.5

# gradient() and update() are step(); what is in `inputs` is the batch of a call without one.
given.inputs["x"], given.inputs["labels"][:] = x[:8], labels[:8]
assert given.gradient() == model.step([x[:8], labels[:8]])
assert numpy.abs(given.gradients["0.weight"]).sum() > 0
given.update()
for name, array in model.parameters.items():
    assert (array == given.parameters[name]).all(), name
assert given.eval() == model.eval(batch) < first and model.steps == given.steps == 2

# They ignore accumulate: the program averages the gradients, by which step() updates.
counts = amosc.compile(mlp, loss=loss, seed=1, accumulate=2, batch=8)
halves = amosc.compile(mlp, loss=loss, seed=1, accumulate=2, batch=8)
total = {}
for k in range(2):
    counts.step([x[8 * k : 8 * k + 8], labels[8 * k : 8 * k + 8]])
    halves.gradient([x[8 * k : 8 * k + 8], labels[8 * k : 8 * k + 8]])
    for name, array in halves.gradients.items():
        total[name] = total.get(name, 0) + array
for name, array in halves.gradients.items():
    array[...] = total[name] / 2
halves.update()
assert counts.steps == halves.steps == 1
for name, array in counts.parameters.items():
    assert numpy.allclose(array, halves.parameters[name], atol=1e-6), name

# Outputs, against NumPy; arrays in place, and copies of those that cannot be.
w = model.parameters
expected = numpy.maximum(x[:8] @ w["0.weight"].T + w["0.bias"], 0) @ w["2.weight"].T + w["2.bias"]
levels = []
logging.getLogger("amosc").setLevel(logging.DEBUG)
for array, copied in (aligned(x[:8]), False), (aligned(x[:8], 4), True), (aligned(x[:8].T).T, True):
    notes.clear()
    assert numpy.allclose(model.forward({"x": array})["logits"], expected, atol=1e-6)
    assert any("input 'x' is copied" in note for note in notes) == copied, notes
logging.getLogger("amosc").setLevel(logging.WARNING)
kept = aligned(x[:8])
model.inputs["x"] = numpy.zeros((8, 4), "f4")
model.forward([kept])
del kept
gc.collect()
assert numpy.allclose(
    model.forward()["logits"],
    numpy.maximum(w["0.bias"], 0) @ w["2.weight"].T + w["2.bias"],
    atol=1e-6,
)


class Exported:  # as arrays of other libraries are
    def __init__(self, array):
        self.array, self.dtype = array, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


assert numpy.allclose(model.forward(x=Exported(x[:8].copy()))["logits"], expected, atol=1e-6)
assert numpy.allclose(model.forward(x=x[:8].tolist())["logits"], expected, atol=1e-6)
gradients = numpy.from_dlpack(model.gradients["0.weight"])
assert gradients.ctypes.data == model.gradients["0.weight"].ctypes.data

# Views outlive the model.
view = amosc.compile(mlp, loss=loss, batch=8).parameters["0.weight"]
gc.collect()
assert view.shape == (8, 4) and numpy.isfinite(view).all()

# Errors.
fails(
    amosc.InputError,
    "mlp.onnx: input 'x': expected f32[8,4], found f64[8,4]\n  help: convert it to float32",
    model.step,
    {**batch, "x": x[:8].astype("f8")},
)
fails(
    amosc.InputError,
    "input 'x': expected f32[8,4], found f32[7,4]",
    model.step,
    x=x[:7],
    labels=labels[:8],
)
fails(
    amosc.InputError,
    "input 'labels': expected i64[8], found f64[8]",
    model.step,
    x=x[:8],
    labels=[0.5] * 8,
)
fails(amosc.InputError, "input 'labels' is missing", model.step, x=x[:8])
fails(
    amosc.InputError,
    "no input 'label'; expected x, labels; found x, label",
    model.step,
    x=x[:8],
    label=labels[:8],
)
fails(
    amosc.InputError,
    "input 'labels': expected integers in [0, 3), found 7 in element 2",
    model.step,
    x=x[:8],
    labels=[0, 1, 7, 0, 0, 0, 0, 0],
)
fails(amosc.InputError, "input 'x': expected f32[8,4]", model.inputs.__setitem__, "x", labels)
fails(amosc.InputError, "nowhere.onnx: cannot be opened", amosc.compile, "nowhere.onnx", loss=loss)
fails(
    amosc.InputError, "'logit' is unknown", amosc.compile, mlp, loss="mse(logit, labels)", batch=8
)
fails(
    amosc.InputError,
    "8\n  help: supply more data",
    amosc.compile(mlp, loss=loss, batch=8).train,
    {"x": x[:4], "labels": labels[:4]},
)
fails(amosc.UsageError, "--nope: no such option", amosc.compile, mlp, nope=1)
fails(TypeError, "help: store() gives", pickle.dumps, model)
fails(amosc.UsageError, "epochs: an option of Model.train()", amosc.compile, mlp, epochs=1)
fails(amosc.UsageError, "minimal: an option of amosc.build()", amosc.compile, mlp, minimal=True)
fails(amosc.UsageError, "purpose: expected train, eval, run", amosc.compile, mlp, purpose="grad")
fails(
    amosc.UsageError,
    "compiled without 'gradient'",
    amosc.compile(mlp, purpose="run", bind={"batch": 8}).gradient,
)
fails(amosc.InputError, "cannot write", model.save, "no/such/folder.ckpt")
fails(TypeError, "seed: expected a number", amosc.compile, mlp, seed=object(), batch=8)
fails(TypeError, "expected the path of an ONNX file", amosc.eta, 3)
fails(TypeError, "rate: expected a number, found 'a'", setattr, model, "rate", "a")
fails(TypeError, "rate: expected a number, found None", setattr, model, "rate", None)
fails(amosc.InputError, "finite factor", setattr, model, "rate", float("nan"))
fails(ValueError, "path: expected no zero byte", model.save, "model\0.ckpt")
fails(ValueError, "loss: expected no zero byte", amosc.eta, mlp, loss=loss + "\0")
fails(TypeError, "bytes-like", model.restore, "text")
assert issubclass(amosc.Bug, amosc.Error) and amosc.InputError.__module__ == "amosc"

# Checkpoints resume to the same bits, from a file and from memory.
model.save("model.ckpt")
stored = model.store()
after = [model.step(batch) for _ in range(3)]
other = amosc.compile(mlp, loss=loss, batch=8, seed=1)
other.load("model.ckpt")
assert other.steps == 2 and [other.step(batch) for _ in range(3)] == after
model.restore(bytearray(stored))
model.rate = 0.5
assert model.rate == 0.5 and [model.step(batch) for _ in range(3)] != after

# Training on arrays and files, with progress.
numpy.savez("train.npz", x=x, labels=labels)
seen = []
trained = amosc.compile(mlp, loss=loss, batch=8, data={"x": x, "labels": labels})
last = trained.train(progress=lambda now: seen.append((now.step, now.loss)), steps=20)
assert [step for step, _ in seen] == list(range(1, 21)) and last.step == 20 == trained.steps
assert last.loss == seen[-1][1] > 0 and "loss=" in repr(last)
again = amosc.compile(mlp, loss=loss, batch=8, data="train.npz")
again.train(steps=10)
again.train(data=["x=train.npz:x", "labels=train.npz:labels"], steps=10)
assert again.store() == trained.store()
assert trained.train(steps=20, progress=lambda now: now.step == 22).step == 22
fails(ZeroDivisionError, "", trained.train, progress=lambda now: 1 / 0, steps=1)
fails(amosc.UsageError, "optimizer", trained.train, optimizer="adamw")
split = amosc.compile(mlp, loss=loss, optimizer="adamw", rate=0.3, batch=8, data="train.npz")
assert split.train(split=0.5, epochs=1000, patience=2).step < 4000

# Ctrl-C ends a training at any moment, and the handler of the program is back.
before = trained.steps
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
fails(KeyboardInterrupt, "", trained.train, epochs=1e6)
assert trained.steps > before and signal.getsignal(signal.SIGINT) is signal.default_int_handler

# The trained model, and programs ahead of time.
trained.export("trained.onnx")
loaded = amosc.compile("trained.onnx", purpose="run", bind={"batch": 8})
assert (loaded.forward([x[:8]])["logits"] == trained.forward([x[:8]])["logits"]).all()
assert list(loaded.frozen) and not list(loaded.parameters) or list(loaded.parameters)
amosc.build(mlp, "net.o", loss=loss, batch=8)
assert (
    pathlib.Path("net.o").stat().st_size > 1000 and "net_model" in pathlib.Path("net.h").read_text()
)
fails(
    amosc.UsageError, "--update-only", amosc.build, mlp, "net", loss=loss, batch=8, update_only=True
)

# The update alone, of a model and of its report.
pathlib.Path("net.json").write_text(amosc.eta(mlp).json())
for source, own in (mlp, {}), ("net.json", {}), (mlp, {"loss": loss, "batch": 8}):
    update = amosc.compile(source, update_only=True, batches=100, **own)
    assert not list(update.inputs) and list(update.gradients) == list(update.parameters)
    before = update.parameters["0.bias"].copy()
    update.gradients["0.bias"][:] = 1
    update.update()
    assert update.steps == 1 and (update.parameters["0.bias"] < before).all()
    fails(amosc.UsageError, "compiled without 'train'", update.step)
fails(amosc.InputError, "a report; expected a model", amosc.compile, "net.json", bind={"batch": 8})
fails(amosc.UsageError, "--xi", amosc.compile, mlp, update_only=True, batches=100, xi=0.1)

# help() names everything public.
for name in amosc.__all__:
    assert getattr(amosc, name).__doc__ and name in pydoc.render_doc(amosc), name
