"""Trains a model step by step by the Python module, and measures inside.

usage: paper_inside.py SPECIFICATION    as JSON; prints a run as study.py keeps it, and in it
    losses   [[step, mean loss of the steps since the row before], ..]
    scales   {parameter: [[step, root mean square], ..]}
    ratios   {parameter: [[step, r], ..]}, r the root mean square of E[g] over that of g, by running
             means of decay 0.98, as in the paper; of noise alone it is sqrt(0.02 / 1.98) = 0.1
    signals  the same of 16 batches at the same weights, with the mean product of two of them for
             the square of E[g], to which noise adds nothing; negative if that mean is
    eta      {parameter: eta}
    state    bytes of the optimizer's state
The specification: model, text, split, length, batch, steps, every (steps from row to row),
eval_every, seed; masked (the byte that masks; null: the next byte is predicted); options (of
amosc.compile()); rate (constant, linear, rsqrt, or continued: linear to two thirds of the steps,
then as if it had been linear to all of them).
"""
import json
import math
import os
import sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../python'))
import amosc

DECAY = 0.98  # of the paper's running means


# ---- batches --------------------------------------------------------------------------

def masked(windows, mask, draws):
    """As BERT: of 15 % of the bytes, 80 % become `mask`, 10 % another; other labels are -100."""
    chosen, how = draws.random(windows.shape) < 0.15, draws.random(windows.shape)
    ids = np.where(chosen & (how < 0.8), mask, windows)
    ids = np.where(chosen & (how >= 0.9), draws.integers(0, 256, windows.shape), ids)
    return {'input_ids': ids, 'labels': np.where(chosen, windows, -100)}


def batch_at(tokens, starts, spec, draws):
    windows = tokens[starts[:, None] + np.arange(spec['length'] + 1)]
    if spec['masked'] is not None:
        return masked(windows[:, :-1], spec['masked'], draws)
    return {'input_ids': windows[:, :-1].copy(), 'labels': windows[:, 1:].copy()}


def held_batches(tokens, spec):
    """The windows of the held-out text, in complete batches; the same masks each time."""
    draws = np.random.default_rng(0)
    starts = np.arange(0, len(tokens) - spec['length'], spec['length'])
    whole = len(starts) // spec['batch'] * spec['batch']
    return [batch_at(tokens, part, spec, draws)
            for part in starts[:whole].reshape(-1, spec['batch'])]


# ---- training -------------------------------------------------------------------------

def factor(spec, step):
    """Of the rate after warm-up, at `step` from 1."""
    steps, warmup = spec['steps'], spec['options'].get('warmup', 0)
    if spec['rate'] == 'linear':
        return 1 - (step - 1) / steps
    if spec['rate'] == 'rsqrt':
        return math.sqrt(warmup / max(step, warmup))
    if spec['rate'] == 'continued':
        end = steps * 2 // 3
        return 1 - (step - 1) / (end if step <= end else steps)
    return 1


class Means:
    """Running means of each parameter's gradient and of its mean square."""
    def __init__(self, gradients):
        self.first = {name: np.zeros_like(g) for name, g in gradients.items()}
        self.second = dict.fromkeys(gradients, 0.0)

    def add(self, gradients):
        for name, g in gradients.items():
            self.first[name] = DECAY * self.first[name] + (1 - DECAY) * g
            self.second[name] += (1 - DECAY) * (mean(g * g) - self.second[name])

    def ratios(self, step):
        unbias = 1 - DECAY ** step
        return {name: rms(first) / math.sqrt(max(self.second[name], 1e-38) * unbias)
                for name, first in self.first.items()}


def signals(model, batches):
    total, squares = {}, {}
    for batch in batches:
        model.gradient(batch)
        for name, g in model.gradients.items():
            total[name] = total.get(name, 0) + g
            squares[name] = squares.get(name, 0) + mean(g * g)
    n = len(batches)
    found = {}
    for name, square in squares.items():
        product = (mean(total[name] ** 2) - square) / (n - 1) / max(square, 1e-38)
        found[name] = math.copysign(math.sqrt(abs(product)), product)
    return found


def mean(x):
    return float(np.mean(x))


def rms(x):
    return math.sqrt(mean(x * x))


def trained(spec):
    with open(spec['text'], 'rb') as f:
        tokens = np.frombuffer(f.read(), np.uint8).astype(np.int64)
    train, held = np.split(tokens, [int(len(tokens) * spec['split'])])
    held, draws = held_batches(held, spec), np.random.default_rng(spec['seed'])
    model = amosc.compile(spec['model'], loss='cross_entropy(logits, labels)', batch=spec['batch'],
                          threads=1, seed=spec['seed'], **spec['options'])

    def batch():
        starts = draws.integers(0, len(train) - spec['length'], spec['batch'])
        return batch_at(train, starts, spec, draws)

    run = {'evaluations': [], 'losses': [], 'scales': {}, 'ratios': {}, 'signals': {}}
    means, recent = None, []
    for step in range(1, spec['steps'] + 1):
        recent.append(model.gradient(batch()))
        means = means or Means(model.gradients)
        means.add(model.gradients)
        model.rate = factor(spec, step)
        model.update()
        if step % spec['every'] == 0 or step == 1:
            run['losses'].append([step, round(mean(recent), 5)])
            recent = []
            weights = {name: rms(w) for name, w in model.parameters.items()}
            sample = signals(model, [batch() for _ in range(16)])
            for key, values in (('ratios', means.ratios(step)), ('signals', sample),
                                ('scales', weights)):
                for name in means.first:
                    run[key].setdefault(name, []).append([step, float(f'{values[name]:.4g}')])
        if step % spec['eval_every'] == 0 or step == spec['steps']:
            loss = mean([model.eval(part) for part in held])
            run['evaluations'].append([step, round(loss, 6), None])
    found = [loss for _, loss, _ in run['evaluations']]
    run['eta'] = {name: model.report.parameters[name]['eta'] for name in run['scales']}
    return {**run, 'final': found[-1], 'best': min(found), 'steps': spec['steps'],
            'state': sum(a.nbytes for a in model.state.values()),
            'cpu_s': round(os.times().user, 2)}


print(json.dumps(trained(json.loads(sys.argv[1]))))
