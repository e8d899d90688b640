"""classify.py: trains the shared library net.so by ctypes and prints the loss; needs no package."""
import ctypes
import math
import os
import sys

INPUTS = 0  # enum amos_kind
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1]))
lib.amos_error.restype = ctypes.c_char_p
lib.amos_values.restype = ctypes.c_void_p
lib.amos_bytes.restype = lib.amos_find.restype = ctypes.c_int64
lib.amos_values.argtypes = lib.amos_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
lib.amos_find.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
lib.amos_step.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_double)]
lib.amos_close.argtypes = [ctypes.c_void_p]


def need(status):
    if status:
        sys.exit(lib.amos_error().decode())


def values(name, ctype):
    """Returns the array of an input as a view that writes into the model."""
    i = lib.amos_find(model, INPUTS, name)
    count = lib.amos_bytes(model, INPUTS, i) // ctypes.sizeof(ctype)
    return (ctype * count).from_address(lib.amos_values(model, INPUTS, i))


model, loss = ctypes.c_void_p(), ctypes.c_double()
need(lib.amos_open(ctypes.byref(ctypes.c_char.in_dll(lib, "net_model")), None, ctypes.byref(model)))
x, labels = values(b"x", ctypes.c_float), values(b"labels", ctypes.c_int64)
x[:] = [math.sin(0.7 * i) for i in range(len(x))]
labels[:] = [i % 3 for i in range(len(labels))]
losses = []
for step in range(300):
    need(lib.amos_step(model, ctypes.byref(loss)))
    losses.append(loss.value)
lib.amos_close(model)
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {len(losses)} steps")
sys.exit(losses[-1] > 0.5 * losses[0])
