"""What the peers share: their arguments, the loss, how a step is timed, and the line of JSON that they print.

A peer is called as PEER MODEL.onnx BATCH.npz LOSS THREADS SECONDS [SETTING [MODULE]], with one batch of the model's inputs and
of the labels that LOSS names; 0 threads are all of them. It prints {"median_s": a step, "steps": how many, "first_s": from
the start of the process to the end of the first step, "loss": that of the first step, "peak_mb": the largest resident memory,
"version"}, or {"error": what it cannot do}.
"""
import json
import os
import re
import resource
import signal
import statistics
import sys
import time
from collections import namedtuple

START = float(os.environ.setdefault('AMOSC_PEER_START', repr(time.time())))
Task = namedtuple('Task', 'model batch loss threads seconds setting module')
Loss = namedtuple('Loss', 'kind output labels')


def fail(text):
    print(json.dumps({'error': text}), flush=True)
    sys.exit(1)


def end_as(status):
    """Ends with the status of the process that did the work."""
    if status < 0:
        fail(f'it crashed: {signal.Signals(-status).name}')
    sys.exit(status)


def task():
    words = sys.argv[1:] + [''] * (8 - len(sys.argv))
    threads = int(words[3]) or len(os.sched_getaffinity(0))
    return Task(words[0], words[1], words[2], threads, float(words[4]), words[5], words[6])


def need(module, package):
    try:
        return __import__(module)
    except ImportError:
        return fail(f"{sys.executable} has no module '{module}'; install {package}, or name another Python")


def loss_of(text):
    """Parses cross_entropy(OUTPUT, LABELS) or mse(OUTPUT, TARGET); names may be in double quotes."""
    name = r'\s*(?:"([^"]+)"|([\w.]+))\s*'
    found = re.fullmatch(rf'\s*(cross_entropy|mse)\s*\({name},{name}\)\s*', text)
    if not found:
        fail(f"the loss '{text}' is not cross_entropy(OUTPUT, LABELS) or mse(OUTPUT, TARGET)")
    kind, *names = found.groups()
    return Loss(kind, names[0] or names[1], names[2] or names[3])


def batch_of(task, loss):
    import numpy as np
    batch = dict(np.load(task.batch))
    if loss.labels not in batch:
        fail(f"'{loss.labels}' is not in the batch")
    labels = batch.pop(loss.labels)
    return batch, labels.astype(np.int64) if loss.kind == 'cross_entropy' else labels


def trained_names(model):
    """The names of the initializers to train: floats of several elements that are no running statistics.

    PyTorch's exporter names val_N the constants that it computes, and the weights that it transposes.
    """
    import numpy as np
    graph = model.graph
    running = {name for node in graph.node if node.op_type == 'BatchNormalization' for name in node.input[3:5]}
    weights = {name for node in graph.node if node.op_type in ('MatMul', 'Gemm', 'Conv', 'LSTM') for name in node.input}
    return {i.name for i in graph.initializer if i.data_type == 1 and i.name not in running and np.prod(i.dims) > 1
            and (not i.name.startswith('val_') or i.name in weights)}


def measure(task, step, version, **more):
    """Times step(), which returns the loss once all is computed, and prints the result."""
    loss = step()
    first = time.time() - START
    for _ in range(2):
        step()
    took, end = [], time.time() + task.seconds
    while len(took) < 5 or (len(took) < 2000 and time.time() < end):
        begin = time.perf_counter()
        step()
        took.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({'median_s': statistics.median(took), 'least_s': min(took), 'steps': len(took), 'first_s': first,
                      'loss': loss, 'peak_mb': peak, 'version': version, **more}))
