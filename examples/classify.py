"""classify.py: trains the shared library net.so in Python, by the bindings that amosc writes beside it."""
import math
import sys

from net_model import Trainer, numpy

model = Trainer()
x, labels = model.inputs["x"], model.inputs["labels"]
points = [math.sin(0.7 * i) for i in range(4 * len(labels))]
x[:] = numpy.array(points).reshape(x.shape) if numpy else points
labels[:] = [i % 3 for i in range(len(labels))]
losses = [model.step() for _ in range(300)]
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {model.steps()} steps")
sys.exit(losses[-1] > 0.5 * losses[0])
