"""Draws what `paper` trained: the figures, and their tables in paper.md."""
import math
import os
import re
import statistics
from study import Curve, Panel, figure, mean_curve, table

COMMON = ('--mask-token', '--keep')  # options of all pre-training
ENCODERS = {'bert': 'BERT', 'rope': 'RoPE', 'rpe': 'RPE', 't5': 'T5'}
SHORT = r'Amos$|Amos, (eta|linear|xi)|AdamW$|AdamW, (2/3|constant)|AdaFactor$|amosc'


# ---- values ---------------------------------------------------------------------------

def last(run, column=1):
    return run['evaluations'][-1][column]


def spread(values, form='.3f'):
    """The mean, and half of the range of several."""
    half = f' ± {(max(values) - min(values)) / 2:{form}}' if len(values) > 1 else ''
    return f'{statistics.fmean(values):{form}}{half}'


def reached(run, loss):
    """The step at which the held-out loss reaches `loss`, linear between evaluations, or None."""
    before = None
    for step, value, _ in run['evaluations']:
        if value <= loss:
            if before is None:
                return step
            return before[0] + (step - before[0]) * (before[1] - loss) / (before[1] - value)
        before = step, value
    return None


def share(runs, goals):
    """The part of `goals`' steps after which each run has the last loss of its seed's goal."""
    goal = {run['seed']: run for run in goals}
    parts = [(reached(run, last(goal[run['seed']])), goal[run['seed']]['steps'])
             for run in runs if run['seed'] in goal]
    return ', '.join('never' if at is None else f'{100 * at / steps:.0f} %' for at, steps in parts)


def rate_in(run):
    return float(next(option.split('=')[1] for option in run['options']
                      if option.startswith(('--xi=', '--rate='))))


def lowest(points):
    """Where the parabola through the lowest point and its neighbors, over log x, is lowest."""
    at = min(range(len(points)), key=lambda i: points[i][1])
    if not 0 < at < len(points) - 1:
        return 'the border'
    (a, fa), (b, fb), (c, fc) = [(math.log(x), y) for x, y in points[at - 1:at + 2]]
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
    return f'{math.exp((a + b) / 2 - left * (c - a) / 2 / (right - left)):.3g}'


def told(head, rows):
    """The command of the first of rows (cells, runs behind them), and their table."""
    if not rows:
        return 'No runs yet.'
    command = re.sub(r' --seed=\d+', ' --seed=SEED', rows[0][1][0]['command'])
    cells = [[*found, options_of(runs),
              ', '.join(map(str, sorted({run['seed'] for run in runs})))] for found, runs in rows]
    return (f'The command of the first row, in FOLDER:\n\n    {command}\n\n'
            + table([*head, 'options', 'seeds'], cells))


def options_of(runs):
    """Those that all runs have."""
    words = [option for option in runs[0]['options'] if not option.startswith(COMMON)
             and all(option in run['options'] for run in runs)]
    return '`' + ' '.join(words) + '`' if words else 'none'


# ---- parts ----------------------------------------------------------------------------

class Report:
    """Each part returns Markdown; `pictures` has the figures of those called, by file."""
    def __init__(self, runs):
        self.runs, self.pictures = runs, {}

    def of(self, task, pattern=''):
        """[(configuration, runs), ..] of a task, of configurations that begin with the pattern."""
        labels = dict.fromkeys(run['configuration'] for run in self.runs if run['task'] == task)
        return [(label, self.runs.of(task, label)) for label in labels if re.match(pattern, label)]

    def part(self, name, title, panels, columns, head, rows):
        """The figure, and the table of rows (cells, runs behind them)."""
        self.pictures[f'paper-{name}.svg'] = figure(panels, columns, 400, 280)
        return f'![{title}](plots/paper-{name}.svg)\n\n' + told(head, rows)

    def pretraining(self):
        panels, rows = [], []

        def add(title, task, pattern, goal):
            found = self.of(task, pattern)
            curves = [mean_curve(label.replace(', long', ''), runs) for label, runs in found]
            panels.append(Panel(title, curves, y='held-out loss'))
            for label, runs in found:
                at = share(runs, self.runs.of(task, goal))
                rows.append(((title, label, spread([last(r) for r in runs]), at), runs))

        for task, title in ENCODERS.items():
            add(title, task, SHORT, 'AdamW')
        add('RoPE, long', 'rope', r'.*, long', 'AdamW, long')
        add("RoPE, AdamW's schedules", 'inside rope', r'Amos$|AdamW', 'AdamW')
        return self.part('pretraining', 'held-out loss of pre-training', panels, 2,
                         ('model', 'optimizer', 'last loss', "has AdamW's last at"), rows)

    def scales(self):
        def panel(title, task, name, pattern):
            found = self.of(task, pattern)
            curves = [Curve(label, runs[0]['scales'][name]) for label, runs in found]
            etas = {runs[0]['eta'][name]: eta_curve(runs[0], name) for _, runs in found}
            return Panel(title, [*curves, *etas.values()], y='root mean square')

        def every(title, pattern):
            curves = [Curve(label, [(step, v / runs[0]['eta'][name]) for step, v in points if v])
                      for label, runs in self.of('inside rope', pattern)
                      for name, points in runs[0]['scales'].items()]
            return Panel(title, curves, y='root mean square / eta', log='y', low=0.01, high=10)

        both = r'Amos($|, xi)|AdamW$'
        panels = [panel('token embeddings, RoPE', 'inside rope', 'tokens.weight', both),
                  panel('bias of dense2, RoPE', 'inside rope', 'layers.1.down.bias', both),
                  panel('distances, RPE', 'inside rpe', 'layers.1.attention.distances.weight', ''),
                  every('all parameters of RoPE', r'Amos, xi|AdamW$')]
        rows = []
        for task in ('rope', 'rpe', 'lstm'):
            for label, runs in self.of('inside ' + task, r'Amos$|Amos, (xi|eta)|AdamW$|Adam$'):
                parts = {}
                for name, points in runs[0]['scales'].items():
                    ratio = points[-1][1] / runs[0]['eta'][name]
                    parts.setdefault(kind_of(name), []).append(ratio)
                cells = [' / '.join(f'{f(parts[kind]):.2f}' for f in (min, statistics.median, max))
                         if kind in parts else '' for kind in ('kernel', 'table', 'bias', 'norm')]
                rows.append(((task, label, *cells), runs))
        return self.part('scales', 'root mean squares of weights', panels, 2,
                         ('model', 'optimizer', 'kernels', 'tables', 'biases', 'factors of norms'),
                         rows)

    def lstm(self):
        found, name = self.of('inside lstm'), 'layer.weight_hh_l0'
        etas = [eta_curve(runs[0], name) for _, runs in found[:1]]
        panels = [
            Panel('training loss', [mean_curve(label, runs, 'losses') for label, runs in found]),
            Panel('held-out loss', [mean_curve(label, runs) for label, runs in found]),
            Panel('recurrent kernel', [Curve(label, runs[0]['scales'][name])
                                       for label, runs in found] + etas, y='root mean square')]
        rows = [((label, spread([r['losses'][-1][1] for r in runs]),
                  spread([math.exp(last(r)) for r in runs], '.2f'),
                  spread([math.exp(r['best']) for r in runs], '.2f'),
                  spread([r['scales'][name][-1][1] for r in runs]),
                  f"{runs[0]['eta'][name]:.3f}"), runs) for label, runs in found]
        return self.part('lstm', 'losses and kernel of an LSTM', panels, 3,
                         ('optimizer', 'training loss', 'last held-out perplexity', 'best',
                          'RMS of the kernel', 'its eta'), rows)

    def rates(self):
        panels, rows = [], []
        kinds = (('AdamW', r'AdamW( [\d.]+)?$'), ('AdaFactor', r'AdaFactor( [\d.]+)?$'),
                 ('Amos', r'Amos( [\d.]+, batch (32|16))?$'),
                 ('Amos, a quarter of the batch', r'Amos [\d.]+, batch 8$'))
        for task in ('rope', 'rpe', 'bert', 't5'):
            ends = []
            for title, pattern in kinds:
                searched = sorted((rate_in(runs[0]), runs) for _, runs in self.of(task, pattern))
                seeds = [{run['seed'] for run in runs} for _, runs in searched]
                seeds = set.intersection(*seeds) if seeds else ()
                if not seeds:
                    continue
                searched = [(rate, [run for run in runs if run['seed'] in seeds])
                            for rate, runs in searched]
                points = [(rate, statistics.fmean(map(last, runs))) for rate, runs in searched]
                ends.append(Curve(title, points))
                losses = ', '.join(f'{x:g}: {y:.3f}' for x, y in points)
                rows.append(((ENCODERS[task], title, losses, lowest(points)),
                             [run for _, runs in searched for run in runs]))
                if task == 'rope':
                    curves = [mean_curve(f'{rate:g}', runs) for rate, runs in searched]
                    panels.append(Panel(f'RoPE, {title}', curves, y='held-out loss'))
            panels.append(Panel(f'{ENCODERS[task]}, last loss', ends, x='rate or xi', log='x'))
        return self.part('rates', 'search for rates', panels, 2,
                         ('model', 'optimizer', 'last loss by rate or xi', 'lowest at'), rows)

    def assumption(self):
        names = {'tokens.weight': 'token embeddings', 'layers.0.attention.q.weight': 'query kernel',
                 'layers.1.down.weight': 'dense2 kernel', 'layers.1.down.bias': 'dense2 bias'}
        found = self.of('inside rope', r'Amos($|, xi)|AdamW$')
        kinds = (('ratios', "the paper's estimate", 0.05), ('signals', 'without noise', 0.005))
        panels = [Panel(f'{title}, {words}', [Curve(label, runs[0][key][name])
                                              for label, runs in found], log='y', low=low, high=1)
                  for key, words, low in kinds for name, title in names.items()]
        rows = [((label, *(f'{values[0]:.3f} / {statistics.median(values):.3f}'
                           for key, _, _ in kinds for at in (1, -1) for values in
                           [sorted(points[at][1] for points in runs[0][key].values())])), runs)
                for label, runs in found]
        early = found[0][1][0]['losses'][1][0] if found else 0
        return self.part('assumption', 'ratios of the assumption', panels, 4,
                         ('run', f"paper's, at {early} steps", 'at the end',
                          f'without noise, at {early} steps', 'at the end'), rows)

    def slots(self):
        names = {'one axis reduced': 'Amos', 'both axes of kernels': 'both axes of kernels reduced',
                 'no axis': 'no axis reduced', 'AdamW': 'AdamW', 'AdaFactor': 'AdaFactor'}
        state = {name: runs[0]['state'] for name, label in names.items()
                 for runs in [self.runs.of('inside rope', label)] if runs}
        losses = {name: self.runs.of('rope', label) for name, label in names.items()}
        losses = {name: runs for name, runs in losses.items() if runs}
        panels = [Panel('RoPE', [mean_curve(name, runs) for name, runs in losses.items()
                                 if name != 'AdamW'], y='held-out loss')]
        rows = [((name, spread([last(r) for r in losses[name]]) if name in losses else '',
                  f'{size}', f"{100 * size / state['AdamW']:.1f} %"),
                 losses.get(name) or self.runs.of('inside rope', names[name]))
                for name, size in state.items() if 'AdamW' in state]
        return self.part('slots', 'slots of Amos', panels, 1,
                         ('slots', 'last loss', 'bytes of state', "of AdamW's"), rows)

    def resnet(self):
        found = self.of('resnet')

        def errors(title, pattern):
            kept = [(label, [{'evaluations': [[s, 1 - a] for s, _, a in r['evaluations']]}
                             for r in runs]) for label, runs in found if re.match(pattern, label)]
            return Panel(title, [mean_curve(label, runs) for label, runs in kept], y='error',
                         log='y')
        panels = [errors('Amos', 'Amos|amosc'), errors('Amos and Adam', 'Amos$|Adam '),
                  errors('Amos-Extra and AdamW', 'Amos-Extra|AdamW')]
        rows = [((label, spread([100 * (1 - last(r, 2)) for r in runs], '.1f'),
                  spread([100 * (1 - max(e[2] for e in r['evaluations'])) for r in runs], '.1f'),
                  spread([last(r) for r in runs])), runs) for label, runs in found]
        return self.part('resnet', 'errors of a ResNet', panels, 3,
                         ('optimizer', 'last error, %', 'least error, %', 'last loss'), rows)

    def tuned(self):
        rows = [((label, spread([100 * max(e[2] for e in r['evaluations']) for r in runs], '.1f')),
                 runs) for label, runs in self.of('fine-tuning')]
        return told(('pre-trained by', 'best accuracy, %'), rows)


def eta_curve(run, name):
    points = [(step, run['eta'][name]) for step in (1, run['steps'])]
    return Curve('eta', points, style='dashed', color='#888888')


def kind_of(name):
    if name.endswith('bias') or '.bias_' in name:
        return 'bias'
    if re.search(r'norm\d?\.|last\.', name):
        return 'norm'
    return 'table' if re.match(r'tokens|places|.*distances', name) else 'kernel'


# ---- files ----------------------------------------------------------------------------

def write(folder, runs, source):
    """Draws into folder/plots, and writes folder/paper.md: the file `source` with what is between
    `<!-- PART -->` and `<!-- end -->` made anew."""
    report, path = Report(runs), os.path.join(folder, 'paper.md')
    with open(source) as f:
        text = re.sub(r'(<!-- (\w+) -->\n).*?(<!-- end -->)',
                      lambda m: f'{m[1]}{getattr(report, m[2])()}\n{m[3]}', f.read(), flags=re.S)
    os.makedirs(os.path.join(folder, 'plots'), exist_ok=True)
    files = {os.path.join(folder, 'plots', name): svg for name, svg in report.pictures.items()}
    for name, content in {path: text, **files}.items():
        with open(name, 'w') as f:
            f.write(content)
