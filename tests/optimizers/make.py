#!/usr/bin/env python3
"""make: writes vectors.json, steps of the optimizers of optim.am and values of their schedules, by NumPy in double, from
their publications. The gradient of a parameter w is g + w / 4, where g is given and w is taken at the optimizer's point.
usage: make >vectors.json"""
import json
import math
import numpy as np

STEPS = 6
rng = np.random.default_rng(0)


def numbers(*shape):
    return np.round(rng.normal(size=shape), 4)


# A vector, a table, and two hidden kernels: one with fused queries, keys and values, the heads of queries and keys
# alternating, in storage [inputs, outputs]; and a stack of two convolutions' kernels, [group outputs, inputs, taps].
PARAMS = {
    'bias': dict(shape=[5], role='bias', eta=0.5),
    'table': dict(shape=[4, 3], role='embedding', eta=1.0),
    'fused': dict(shape=[3, 10], role='kernel', eta=0.2, fan_in=[0], fan_out=[1], axis=1,
                  pieces=[[0, 2, 'query', 1], [2, 4, 'key', 1], [4, 6, 'query', 1], [6, 8, 'key', 1], [8, 10, 'value', 0]],
                  etas=[0.2, 0.3, 0.4, 0.3, 0.1]),
    'conv': dict(shape=[2, 4, 2, 3], role='kernel', eta=0.4, fan_in=[2, 3], fan_out=[1], groups=2, group_axes=[0]),
}
# By hand: index lists of the matrices, [rows, columns], of outputs and inputs.
MATRICES = {
    'fused': [(np.s_[:, [0, 1, 4, 5]], lambda x: x.T, lambda x: x.T, math.sqrt((0.04 + 0.16) / 2)),
              (np.s_[:, [2, 3, 6, 7]], lambda x: x.T, lambda x: x.T, 0.3),
              (np.s_[:, [8, 9]], lambda x: x.T, lambda x: x.T, 0.1)],
    'conv': [(np.s_[i], lambda x: x.reshape(4, 6), lambda x: x.reshape(4, 2, 3), 0.4) for i in range(2)],
}


class State(dict):
    """Arrays of zeros by name."""
    def of(self, name, like):
        return self.setdefault(name, np.zeros_like(like))


def decay_of(o, name):
    role = PARAMS[name]['role']
    return o.get('decay' if role == 'kernel' else 'table_decay' if role == 'embedding' else 'other_decay', 0)


def factor(schedule, t, steps, warmup, cooldown=0.2, final=0):
    """The factor of the step size at step t = 1, 2, ..."""
    rise = min(t / warmup, 1) if warmup else 1
    after = max(steps - warmup, steps / 2)
    length = {'constant': 0, 'linear': after, 'cosine': after, 'trapezoid': cooldown * steps}[schedule]
    left = min((steps + 1 - t) / (length + 1), 1) if schedule != 'constant' else 1
    left = (1 + math.cos(math.pi * (1 - left))) / 2 if schedule == 'cosine' else left
    return rise * (final + (1 - final) * left)


def moments(o, s, g):
    s['m'] = o['beta'] * s.of('m', g) + (1 - o['beta']) * g
    s['v'] = o['beta2'] * s.of('v', g) + (1 - o['beta2']) * g * g


def adam(o, s, w, g, t, rate, decay):
    """arXiv 1711.05101"""
    moments(o, s, g)
    m, v = s['m'] / (1 - o['beta']**t), s['v'] / (1 - o['beta2']**t)
    return w - rate * (m / (np.sqrt(v) + o['eps']) + decay * w)


def adamw(o, s, w, g, t, rate, name, every):
    return adam(o, s, w, g, t, rate, decay_of(o, name))


def adam_l2(o, s, w, g, t, rate, name, every):
    """arXiv 1412.6980, with L2 in the gradient"""
    return adam(o, s, w, g + decay_of(o, name) * w, t, rate, 0)


def sgd(o, s, w, g, t, rate, name, every):
    """As torch.optim.SGD"""
    g = g + decay_of(o, name) * w
    s['m'] = o['momentum'] * s.of('m', g) + g
    return w - rate * s['m']


def adafactor(o, s, w, g, t, rate, name, every):
    """arXiv 1804.04235, algorithms 4 and 5, without momentum"""
    keep, square = 1 - t**-0.8, g * g + o['eps']
    if w.ndim < 2:
        s['v'] = v = keep * s.of('v', g) + (1 - keep) * square
    else:
        s['r'] = keep * s.get('r', 0) + (1 - keep) * square.mean(-1, keepdims=True)
        s['c'] = keep * s.get('c', 0) + (1 - keep) * square.mean(-2, keepdims=True)
        v = s['r'] * s['c'] / s['r'].mean(-2, keepdims=True)
    u = g / np.sqrt(v)
    u = u / max(1, math.sqrt(np.mean(u * u)))
    return w * (1 - rate * decay_of(o, name)) - rate * max(1e-3, math.sqrt(np.mean(w * w))) * u


def nadamw(o, s, w, g, t, rate, name, every):
    """Dozat 2016, with decoupled decay"""
    def momentum(t):
        return o['beta'] * (1 - 0.5 * 0.96**(t * o['momentum_decay']))
    moments(o, s, g)
    product = math.prod(momentum(k) for k in range(1, t + 1))
    mean = (1 - momentum(t)) * g / (1 - product) + momentum(t + 1) * s['m'] / (1 - product * momentum(t + 1))
    return w * (1 - rate * decay_of(o, name)) - rate * mean / (np.sqrt(s['v'] / (1 - o['beta2']**t)) + o['eps'])


def lion(o, s, w, g, t, rate, name, every):
    """arXiv 2302.06675, algorithm 2"""
    c = o['beta'] * s.of('m', g) + (1 - o['beta']) * g
    s['m'] = o['beta2'] * s['m'] + (1 - o['beta2']) * g
    return w - rate * (np.sign(c) + decay_of(o, name) * w)


def ademamix(o, s, w, g, t, rate, name, every):
    """arXiv 2409.03137, algorithm 1"""
    part = min(t / (o.get('ramp') or o['steps']), 1)
    start, end = math.log(o['beta']), math.log(o['beta3'])
    beta3 = min(math.exp(start * end / ((1 - part) * end + part * start)), o['beta3'])
    moments(o, s, g)
    s['n'] = beta3 * s.of('n', g) + (1 - beta3) * g
    mean = s['m'] / (1 - o['beta']**t) + min(t * o['alpha'] / (o.get('ramp') or o['steps']), o['alpha']) * s['n']
    return w - rate * (mean / (np.sqrt(s['v'] / (1 - o['beta2']**t)) + o['eps']) + decay_of(o, name) * w)


def schedulefree(o, s, w, g, t, rate, name, every):
    """arXiv 2405.15682, algorithm 1; w is x"""
    z, y = s.get('z', w), point(o, s, w)
    every.setdefault('sizes', {})[t] = size = rate * math.sqrt(1 - o['beta2']**t)
    s['v'] = o['beta2'] * s.of('v', g) + (1 - o['beta2']) * g * g
    s['z'] = z - size * g / (np.sqrt(s['v']) + o['eps']) - size * decay_of(o, name) * y
    c = size**2 / sum(x**2 for x in every['sizes'].values())
    return (1 - c) * w + c * s['z']


def point(o, s, w):
    return (1 - o['beta']) * s.get('z', w) + o['beta'] * w


def orthogonal(x):
    """kellerjordan.github.io/posts/muon"""
    x = x / (np.linalg.norm(x) + 1e-7)
    if x.shape[0] > x.shape[1]:
        return orthogonal_wide(x.T).T
    return orthogonal_wide(x)


def orthogonal_wide(x):
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def nesterov(o, s, g):
    s['m'] = o['momentum'] * s.of('m', g) + (1 - o['momentum']) * g
    return (1 - o['momentum']) * g + o['momentum'] * s['m']


def by_matrix(step):
    """step(o, w, u, rate, decay, eta) for each matrix and its orthogonal update; Adam for the rest."""
    def update(o, s, w, g, t, rate, name, every):
        if name not in MATRICES:
            return adam(o, s, w, g, t, rate / o['rate'] * o['adam_rate'], decay_of(o, name))
        u, new = nesterov(o, s, g), w.copy()
        for index, there, back, eta in MATRICES[name]:
            new[index] = back(step(o, there(w[index]), orthogonal(there(u[index])), rate, decay_of(o, name), eta))
        return new
    return update


def muon_step(o, w, u, rate, decay, eta):
    return w * (1 - rate * decay) - rate * u * max(1, w.shape[0] / w.shape[1])**0.5


def hyperball_step(o, w, u, rate, decay, eta):
    """arXiv 2606.16899, with R = eta sqrt(n)"""
    def norm(x):
        return x / np.linalg.norm(x)
    r = eta * math.sqrt(w.size)
    return r * norm(r * norm(w) - rate * r * norm(u))


def prodigy(o, states, params, grads, t, rate):
    """arXiv 2306.06101, algorithm 4, as in konstmish/prodigy: all parameters at once."""
    all_, d0 = states.setdefault('all', {}), o['d0']
    d, top, n = all_.get('d', d0), all_.get('top', d0), all_.get('n', 0)
    b3 = o.get('beta3') or math.sqrt(o['beta2'])
    n, total = b3 * n, 0
    for name, w in params.items():
        s, g = states.setdefault(name, State()), grads[name]
        x = s.setdefault('x', w.copy())
        n += d / d0 * d * rate * np.sum(g * (x - w))
        s['m'] = o['beta'] * s.of('m', g) + d * (1 - o['beta']) * g
        s['v'] = o['beta2'] * s.of('v', g) + d * d * (1 - o['beta2']) * g * g
        s['a'] = b3 * s.of('a', g) + d / d0 * (d if o.get('warmup') else d * rate) * g
        total += np.abs(s['a']).sum()
    found, before = o['d_coef'] * n / total, d
    if d == d0:
        d = max(d, found)
    top = max(top, found)
    d = min(top, d * (o.get('growth') or math.inf))
    all_.update(d=d, top=top, n=n)
    return {name: w * (1 - before * rate * decay_of(o, name)) -
            before * rate * states[name]['m'] / (np.sqrt(states[name]['v']) + d * o['eps']) for name, w in params.items()}


def run(optimizer, schedule, o, names):
    """Returns a case: the options, the parameters, their gradients, and the parameters after each step."""
    params = {name: numbers(*PARAMS[name]['shape']) for name in names}
    case = dict(optimizer=optimizer, schedule=schedule, options=o,
                params=[dict(PARAMS[name], name=name, w=params[name].ravel().tolist()) for name in names], steps=[])
    states, every = {}, {}
    for t in range(1, STEPS + 1):
        given = {name: numbers(*PARAMS[name]['shape']) for name in names}
        at = {name: point(o, states.setdefault(name, State()), w) if optimizer == 'schedulefree' else w
              for name, w in params.items()}
        grads = {name: given[name] + at[name] / 4 for name in names}
        rate = o['rate'] * factor(schedule, t, STEPS, o.get('warmup', 0), o.get('cooldown', 0.2), o.get('final', 0))
        if optimizer == 'prodigy':
            params = prodigy(o, states, params, grads, t, rate)
        else:
            step = STEP[optimizer]
            params = {name: step(dict(o, steps=STEPS), states.setdefault(name, State()), w, grads[name], t, rate, name,
                                 every) for name, w in params.items()}
        case['steps'].append(dict(given=[given[name].ravel().tolist() for name in names],
                                  after=[params[name].ravel().tolist() for name in names]))
    return case


STEP = dict(adamw=adamw, adam=adam_l2, sgd=sgd, adafactor=adafactor, nadamw=nadamw, lion=lion, ademamix=ademamix,
            schedulefree=schedulefree, muon=by_matrix(muon_step), hyperball=by_matrix(hyperball_step))
ADAM = dict(beta=0.9, beta2=0.99, eps=1e-8)
DECAYS = dict(decay=0.1, table_decay=0.05, other_decay=0.02)
ALL = list(PARAMS)
CASES = [
    run('adamw', 'constant', dict(ADAM | DECAYS, rate=0.1, warmup=3), ALL),
    run('adamw', 'cosine', dict(ADAM, rate=0.1, warmup=2, final=0.1, decay=0.1), ['bias', 'conv']),
    run('adamw', 'linear', dict(ADAM, rate=0.1), ['table']),
    run('adamw', 'linear', dict(ADAM, rate=0.1, warmup=9), ['table']),
    run('adamw', 'trapezoid', dict(ADAM, rate=0.1, warmup=2, cooldown=0.5), ['fused']),
    run('nadamw', 'constant', dict(ADAM | DECAYS, rate=0.1, momentum_decay=0.004), ALL),
    run('lion', 'constant', dict(DECAYS, beta=0.9, beta2=0.99, rate=0.05), ALL),
    run('ademamix', 'constant', dict(ADAM | DECAYS, beta3=0.9999, alpha=5, rate=0.1), ALL),
    run('ademamix', 'constant', dict(ADAM, beta3=0.999, alpha=2, rate=0.1, ramp=4), ['bias']),
    run('schedulefree', 'constant', dict(ADAM | DECAYS, rate=0.1, warmup=3), ALL),
    run('schedulefree', 'constant', dict(ADAM, rate=0.1), ['bias']),
    run('prodigy', 'constant', dict(ADAM | DECAYS, rate=1, d0=1e-3, d_coef=1), ALL),
    run('prodigy', 'cosine', dict(ADAM, rate=0.5, d0=1e-4, d_coef=2, growth=3, warmup=2), ['bias', 'conv']),
    run('muon', 'constant', dict(ADAM | DECAYS, rate=0.02, adam_rate=0.003, momentum=0.95, warmup=2), ALL),
    run('hyperball', 'constant', dict(ADAM | DECAYS, rate=0.02, adam_rate=0.003, momentum=0.95), ALL),
    run('adam', 'constant', dict(ADAM | DECAYS, rate=0.1, warmup=3), ALL),
    run('sgd', 'cosine', dict(DECAYS, rate=0.1, momentum=0.9), ALL),
    run('sgd', 'constant', dict(rate=0.1, momentum=0), ['bias']),
    run('adafactor', 'constant', dict(DECAYS, rate=0.1, eps=1e-30), ALL),
]
print('{"steps": %d, "cases": [' % STEPS)
print(',\n'.join(json.dumps(case) for case in CASES))
print(']}')
