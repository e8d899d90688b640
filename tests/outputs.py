"""outputs.py: a model by the Python bindings that amosc build writes."""
import sys

import first_model as first

assert first.numpy or "NumPy" not in sys.argv
a, b = first.Trainer(), first.Trainer(threads=1)
for m in (a, b):
    x = m.inputs["x"].reshape(-1) if first.numpy else m.inputs["x"]
    for i in range(len(x)):
        x[i] = i % 5 - 2
    for i in range(len(m.inputs["labels"])):
        m.inputs["labels"][i] = i % 3
for _ in range(5):
    loss = a.step()
    assert b.gradient() == loss
    b.update()
assert a.store() == b.store() and a.steps() == 5 and a.metric("loss") == loss
kept = a.store()
assert a.step() == b.step() and a.store() != kept
a.save("python.ckpt")
a.export_onnx("python.onnx")
assert a.onnx() == b.onnx() == open("python.onnx", "rb").read()
a.rate = a.rate / 2
assert a.rate == 0.5
a.restore(kept)
assert a.store() == kept and a.rate == 1 and len(a.block("parameters")) == len(a.block("gradients"))
assert sorted(a.gradients) == sorted(a.parameters) == ["0.bias", "0.weight", "2.bias", "2.weight"]
a.forward()
if first.numpy:
    assert a.outputs["logits"].shape == (2, 3) and a.outputs["logits"].any()
try:
    a.load("nowhere.ckpt")
except first.Error as e:
    assert e.status == 1 and "nowhere.ckpt" in str(e)
else:
    raise SystemExit("a missing checkpoint is loaded")

room = bytearray(4 * 8 + 64)
start = -first.ctypes.addressof(first.ctypes.c_char.from_buffer(room)) % 64
own = a.inputs["x"]
mine = (first.numpy.frombuffer(room, own.dtype, 8, start).reshape(own.shape) if first.numpy
        else type(own).from_buffer(room, start))
mine[:] = own[:]
a.forward()
before = bytes(a.outputs["logits"])
own[0] = 9
a.set_input("x", mine)
a.forward()
assert bytes(a.outputs["logits"]) == before and a.output_shape("logits") == [2, 3]
a.set_input("x", None)
a.forward()
assert bytes(a.outputs["logits"]) != before
own[:] = mine[:]
for i in range(len(own)):
    own[i] = 0
a.inputs["x"] = mine
assert bytes(own) == bytes(mine)
for name, values, error in ("x", own[:1], ValueError), ("nothing", own, KeyError):
    try:
        a.inputs[name] = values
    except error:
        pass
    else:
        raise SystemExit(f"inputs['{name}'] is set to another array")
for name, values, error in ("x", room, TypeError), ("nothing", mine, KeyError):
    try:
        a.set_input(name, values)
    except error:
        pass
    else:
        raise SystemExit(f"input {name} takes {type(values)}")
assert first.command(["trainer", "info"]) == 0
assert first.command(["trainer", "export", "nowhere.ckpt", "-o", "nowhere.onnx"]) == 1

seen = []
a.fit(lambda now: seen.append((now.step, now.loss)) or len(seen) == 3, data="data.npz", steps=5)
assert [step for step, _ in seen] == [6, 7, 8] and a.steps() == 8
try:
    a.fit(lambda now: 1 / 0, data=["data.npz"], epochs=0.5)
except ZeroDivisionError:
    assert a.steps() == 9
else:
    raise SystemExit("an exception of the callback is lost")
