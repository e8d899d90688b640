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

seen = []
a.fit(lambda now: seen.append((now.step, now.loss)) or len(seen) == 3, data="data.npz", steps=5)
assert [step for step, _ in seen] == [6, 7, 8] and a.steps() == 8
try:
    a.fit(lambda now: 1 / 0, data=["data.npz"], epochs=0.5)
except ZeroDivisionError:
    assert a.steps() == 9
else:
    raise SystemExit("an exception of the callback is lost")
