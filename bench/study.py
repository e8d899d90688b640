"""Studies of training: runs of `amosc train` as lines of JSON, tables in Markdown, figures in SVG.

A study calls Runs.train() for each run that it needs: a run that the file of results has is
returned, another one is made and added. A run that was interrupted is not in the file, so a study
resumes where it stopped. Needs only Python's standard library.

A run is a dict, one line of the file:
    task, configuration, seed, options    its key; options are amosc's, beyond those of the task
    command                               repeats it, in the study's directory
    evaluations                           [step, held-out loss, accuracy or null] each
    final, best                           held-out loss; final is null if training diverged
    error                                 amosc's message, if training diverged
    losses                                [step, loss of the batch], if requested
    steps, cpu_s                          updates, user CPU seconds of the process
    version, commit                       of amosc, and the last commit that changed its sources
"""
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
SOURCES = ('common', 'compiler', 'driver', 'passes', 'runtime', 'tools')
DIVERGED = 'so training stopped'  # in amosc's message


# ---- runs -----------------------------------------------------------------------------

class Runs:
    """The runs of a file of results, to which new ones are appended."""
    def __init__(self, path):
        self.path = path
        self.runs = {}
        if os.path.exists(path):
            with open(path) as f:
                for line in f:
                    run = json.loads(line)
                    self.runs[key_of(**run)] = run

    def __iter__(self):
        return iter(self.runs.values())

    def get(self, task, configuration, seed, options=()):
        """The run, or None."""
        return self.runs.get(key_of(task, configuration, seed, options))

    def of(self, task, configuration):
        """All runs of a task in a configuration, by seed."""
        return sorted((r for r in self if (r['task'], r['configuration']) == (task, configuration)),
                      key=lambda r: r['seed'])

    def train(self, task, configuration, seed, options, amosc, **how):
        """The run, made by train(seed=, options=, **how) if the file does not have it."""
        found = self.get(task, configuration, seed, options)
        if found:
            return found
        key = {'task': task, 'configuration': configuration, 'seed': seed, 'options': list(options)}
        return self.add({**key, **train(amosc, seed=seed, options=options, **how)})

    def add(self, run):
        """Appends a run to the file; returns it."""
        with open(self.path, 'a') as f:
            f.write(json.dumps(run) + '\n')
        self.runs[key_of(**run)] = run
        return run


def key_of(task, configuration, seed, options, **_):
    return task, configuration, seed, tuple(options)


class Amosc:
    """The program at `path` (default: build/release), and the commit of its sources."""
    def __init__(self, path=None, commit=None):
        self.path = os.path.abspath(path or os.path.join(TREE, 'build/release/tools/amosc'))
        self.version = output_of([self.path, '--version']).split()[-1]
        log = ['git', '-C', TREE, 'log', '-1', '--format=%h', '--', *SOURCES]
        self.commit = commit or output_of(log)


def output_of(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def train(amosc, model, loss, data, batch, seed=0, split=0.9, steps=None, epochs=None,
          eval_every=None, options=(), threads=1, nice=19, folder='.', out=None, losses=False,
          timeout=None, more=()):
    """Trains with `folder` as the working directory; returns the run without its key.

    data     list of sources, each an argument of --data
    split    part of the data to train on, or None
    out      run directory, relative to `folder`; None: a temporary one
    losses   True: the run has the loss of each batch
    more     options that every run of the task has
    timeout  seconds after which subprocess.TimeoutExpired is raised
    Raises RuntimeError with amosc's message if it fails, unless training diverged.
    """
    words = ['train', model, '--loss', loss]
    for source in data:
        words += ['--data', source]
    numbers = {'batch': batch, 'split': split, 'steps': steps, 'epochs': epochs,
               'eval-every': eval_every, 'seed': seed, 'threads': threads}
    words += [f'--{name}={value}' for name, value in numbers.items() if value is not None]
    words += [*more, *options]
    kept = out or tempfile.mkdtemp(prefix='study-')
    place = os.path.join(folder, kept)
    prefix = ['nice', '-n', str(nice)] if nice else []
    try:
        with tempfile.TemporaryFile('w+') as said:
            process = subprocess.Popen(
                [*prefix, amosc.path, *words, '--quiet', '--overwrite', '-o', kept], cwd=folder,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            status, cpu = wait(process, timeout)
            said.seek(0)
            message = said.read().strip()
        if status and DIVERGED not in message:
            raise RuntimeError(f'{shlex.join(words)}\n{message}')
        with open(os.path.join(place, 'log.jsonl')) as f:
            rows = [json.loads(line) for line in f]
    finally:
        if not out:
            shutil.rmtree(place, ignore_errors=True)
            for end in ('.onnx', '.onnx.data'):
                if os.path.exists(place + end):
                    os.remove(place + end)
    run = {'command': shlex.join(['amosc', *words]),
           **summary(rows, message.split(';')[0] if status else None)}
    if losses:
        run['losses'] = [[r['step'], r['loss']] for r in rows if 'loss' in r]
    return {**run, 'cpu_s': round(cpu, 2), 'version': amosc.version, 'commit': amosc.commit}


def wait(process, timeout):
    """(exit status, user CPU seconds) of a process, which is killed after `timeout` seconds."""
    before = os.times().children_user
    try:
        status = process.wait(timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return status, os.times().children_user - before


def summary(rows, error):
    """What the rows of log.jsonl say of a run."""
    evaluations = [[r['step'], r['eval_loss'], r.get('eval_accuracy')] for r in rows
                   if r.get('eval_loss') is not None]
    found = [loss for _, loss, _ in evaluations]
    run = {'evaluations': evaluations, 'final': found[-1] if found and not error else None,
           'best': min(found, default=None), 'steps': max((r['step'] for r in rows), default=0)}
    return {**run, 'error': error} if error else run


# ---- curves ---------------------------------------------------------------------------

COLORS = ('#d62728', '#1f77b4', '#2ca02c', '#9467bd', '#ff7f0e', '#7f7f7f', '#8c564b', '#e377c2',
          '#bcbd22', '#17becf', '#000000', '#98df8a', '#c5b0d5')


@dataclass
class Curve:
    """Points (x, y), drawn as 'line', 'dashed', 'stairs' (level up to the next x) or 'points'."""
    name: str
    points: list
    band: list = None  # (x, low, high) each, shaded
    style: str = 'line'
    color: str = None  # None: the color of this name in the figure


@dataclass
class Panel:
    title: str
    curves: list
    x: str = 'step'
    y: str = ''
    log: str = ''  # 'x', 'y', 'xy': axes that are logarithmic
    low: float = None  # limits of y; points beyond are drawn at the border
    high: float = None


def mean_curve(name, runs, key='evaluations', column=1, **style):
    """The mean over runs, by step, of the rows under `key`; the band is from least to greatest."""
    values = {}
    for run in runs:
        for row in run[key]:
            if row[column] is not None:
                values.setdefault(row[0], []).append(row[column])
    points = [(step, statistics.fmean(v)) for step, v in sorted(values.items())]
    band = [(step, min(v), max(v)) for step, v in sorted(values.items())] if len(runs) > 1 else None
    return Curve(name, points, band, **style)


def figure(panels, columns=1, width=640, height=400):
    """An SVG picture: panels of `width` by `height` pixels, row by row, and one legend below."""
    names = list(dict.fromkeys(c.name for panel in panels for c in panel.curves))
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    colors.update({c.name: c.color for panel in panels for c in panel.curves if c.color})
    rows = -(-len(panels) // columns)
    legend, lines = legend_of(names, colors, columns * width, rows * height)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * width}" '
             f'height="{rows * height + 18 * lines}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>']
    for i, panel in enumerate(panels):
        parts += [f'<g transform="translate({i % columns * width} {i // columns * height})">',
                  *panel_of(panel, colors, width, height), '</g>']
    return '\n'.join([*parts, *legend, '</svg>']) + '\n'


def legend_of(names, colors, width, top):
    """(its parts, number of lines)"""
    parts, x, line = [], 60, 0
    for name in names:
        if x > 60 and x + 30 + 7 * len(name) > width:
            x, line = 60, line + 1
        y = top + 18 * line
        parts += [f'<rect x="{x}" y="{y}" width="14" height="3" fill="{colors[name]}"/>',
                  text(x + 20, y + 6, name, 'start')]
        x += 40 + 7 * len(name)
    return parts, line + bool(names)


def panel_of(panel, colors, width, height):
    """Parts of a panel: title, axes, curves."""
    left, right, top, bottom = 60, width - 20, 30, height - 40
    center, middle = (left + right) / 2, (top + bottom) / 2
    points = [p for c in panel.curves for p in c.points]
    points += [(x, y) for c in panel.curves for x, *ends in c.band or () for y in ends]
    xs, ys = ([p[i] for p in points if math.isfinite(p[i]) and (p[i] > 0 or axis not in panel.log)]
              for i, axis in enumerate('xy'))
    if not xs or not ys:
        return [text(center, 18, panel.title), text(center, middle, 'no data')]
    low = min(ys) if panel.low is None else panel.low
    high = max(ys) if panel.high is None else panel.high
    at_x = scale(min(xs), max(xs), left, right, 'x' in panel.log)
    at_y = scale(low, high, bottom, top, 'y' in panel.log)
    parts = [text(center, 18, panel.title), text(center, height - 8, panel.x)]
    if panel.y:
        parts.append(f'<g transform="rotate(-90 12 {middle:.0f})">{text(12, middle, panel.y)}</g>')
    for v in ticks(low, high, 'y' in panel.log):
        parts += [f'<path d="M{left} {at_y(v):.1f}H{right}" stroke="#ddd"/>',
                  text(left - 6, at_y(v) + 4, f'{v:.3g}', 'end')]
    for v in ticks(min(xs), max(xs), 'x' in panel.log):
        parts += [f'<path d="M{at_x(v):.1f} {bottom}v4" stroke="#888"/>',
                  text(at_x(v), bottom + 18, f'{v:g}')]
    for c in panel.curves:
        parts += curve_of(c, colors[c.name], at_x, at_y)
    return parts


def curve_of(curve, color, at_x, at_y):
    places = [(at_x(x), at_y(y)) for x, y in curve.points if math.isfinite(x)]
    parts = []
    if curve.band:
        border = [(at_x(x), at_y(high)) for x, _, high in curve.band]
        border += [(at_x(x), at_y(low)) for x, low, _ in reversed(curve.band)]
        parts.append(f'<polygon fill="{color}" fill-opacity="0.15" points="{path(border)}"/>')
    if curve.style == 'stairs':
        places = [q for a, b in zip(places, places[1:]) for q in (a, (b[0], a[1]))] + places[-1:]
    if curve.style == 'points' or len(places) == 1:
        return parts + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
                        for x, y in places]
    dashes = ' stroke-dasharray="6 4"' if curve.style == 'dashed' else ''
    return parts + [f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dashes} '
                    f'points="{path(places)}"/>']


def path(places):
    return ' '.join(f'{x:.1f},{y:.1f}' for x, y in places)


def text(x, y, words, anchor='middle'):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'


def scale(low, high, start, end, log):
    """The function from values to pixels; values out of range, and NaN, are drawn at the ends."""
    first, last = (math.log10(v) if log else v for v in (low, high))
    span = last - first or 1

    def place(v):
        if log:
            v = math.log10(v) if v > 0 else first
        at = 1 if math.isnan(v) else (v - first) / span
        return start + (end - start) * min(max(at, 0), 1)
    return place


def ticks(low, high, log):
    """Round values from `low` to `high`; powers of ten on a logarithmic axis of several decades."""
    if log and high > 10 * low:
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        factors = (1,) if math.log10(high / low) > 2 else (1, 2, 5)
        values = [f * 10.0 ** e for e in exponents for f in factors]
        return [v for v in values if low <= v <= high * (1 + 1e-9)]
    rough = (high - low or abs(high) or 1) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(f * unit for f in (1, 2, 5, 10) if f * unit >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


# ---- tables ---------------------------------------------------------------------------

def table(head, rows):
    """A table in Markdown; `head` and each row are lists of strings."""
    lines = ['| ' + ' | '.join(row) + ' |' for row in [head, *rows]]
    return '\n'.join([lines[0], '|---' * len(head) + '|', *lines[1:]])
