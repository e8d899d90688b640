"""Writes what run measured as tables in Markdown."""
import re
import statistics
import time
from study import table

TEN = ('bert-small', 'gpt2-nano', 'gpt2-small', 't5', 'vit-tiny', 'resnet18', 'resnet50', 'cnn', 'lstm', 'mlp')
SINGLE = ('attention-128', 'attention-128-causal', 'attention-1024', 'attention-1024-causal')
PRODUCTS = ('nn:1024x512x2048', 'nt:1024x512x2048', 'tn:1024x512x2048')
DISTURBED = 0.1  # processors that others used, or the host took
FEATURES = ('avx2', 'fma', 'avx512f', 'avx512_bf16', 'amx_bf16')
LEGEND = '`~`: others, or the host, used the processors meanwhile, `!`: the first loss differs from amosc\'s, so the time does not count.'
median = statistics.median


# ---- results --------------------------------------------------------------------------

class Results:
    def __init__(self, lines):
        self.lines = lines

    def of(self, part, model, name):
        """The results without an error; those that nobody disturbed, if there are any."""
        all_ = [x for x in self.lines if (x['part'], x['model'], x['name']) == (part, model, name) and 'error' not in x]
        return [x for x in all_ if x['foreign'] <= DISTURBED] or all_

    def names(self, part):
        return list(dict.fromkeys(x['name'] for x in self.lines if x['part'] == part))

    def models(self, part):
        return [name for name in TEN + SINGLE if any(x['part'] == part and x['model'] == name for x in self.lines)]

    def value(self, part, model, name, key):
        found = [x[key] for x in self.of(part, model, name)]
        return median(found) if found else None

    def is_wrong(self, part, model, name):
        """True if a peer's first loss is not amosc's: it computes something else."""
        own, other = (self.value(part, model, who, 'loss') for who in ('amosc', name))
        return None not in (own, other) and abs(own - other) > (0.02 if part == 'bf16' else 0.002) * abs(own)

    def best(self, part, model, key='median_s', prefix=''):
        """(value, name) of the best peer, or (None, None)."""
        values = [(self.value(part, model, name, key), name) for name in self.names(part)
                  if name != 'amosc' and name.startswith(prefix) and not self.is_wrong(part, model, name)]
        return min((v for v in values if v[0]), default=(None, None))

    def cell(self, part, model, name, key='median_s', scale=1e3, digits=2):
        value = self.value(part, model, name, key)
        if value is None:
            return '-'
        disturbed = any(x['foreign'] > DISTURBED for x in self.of(part, model, name))
        return f"{scale * value:.{digits}f}{' ~' * disturbed}{' !' * self.is_wrong(part, model, name)}"


def ratio(value, own):
    return value / own if value and own else None


def ratio_text(value):
    return f'{value:.2f}' if value else '-'


def mean_text(values):
    values = [v for v in values if v]
    return f'{statistics.geometric_mean(values):.2f}' if values else '-'


# ---- tables ---------------------------------------------------------------------------

def steps(results, part):
    names = results.names(part)
    head = ['model', *names, 'best peer', 'best / amosc', 'ORT / amosc', 'of FMA peak']
    rows, best, ort = [], [], []
    for model in results.models(part):
        own = results.value(part, model, 'amosc', 'median_s')
        value, name = results.best(part, model)
        best.append(ratio(value, own))
        ort.append(ratio(results.value(part, model, 'ort', 'median_s'), own))
        rows.append([model, *(results.cell(part, model, n) for n in names), name or '-', ratio_text(best[-1]),
                     ratio_text(ort[-1]), peak_cell(results, model) if part == 'step' else '-'])
    return table(head, rows + [['geometric mean', *[''] * (len(names) + 1), mean_text(best), mean_text(ort), '']])


def peak_cell(results, model):
    found = results.of('profile', model, 'amosc')
    if not found:
        return '-'
    disturbed = all(x['machine']['disturbed'] for x in found)
    return f"{100 * median([x['fraction'] for x in found]):.0f} %{' ~' * disturbed}"


def memory(results):
    rows, torch, ort = [], [], []
    for model in results.models('step'):
        own = results.value('step', model, 'amosc', 'peak_mb')
        least, name = results.best('step', model, 'peak_mb', 'torch')
        other = results.value('step', model, 'ort', 'peak_mb')
        torch.append(ratio(own, least))
        ort.append(ratio(own, other))
        rows.append([model, f'{own:.0f}' if own else '-', f'{least:.0f} ({name})' if least else '-',
                     f'{other:.0f}' if other else '-', ratio_text(torch[-1]), ratio_text(ort[-1])])
    rows.append(['geometric mean', '', '', '', mean_text(torch), mean_text(ort)])
    return table(['model', 'amosc', 'least of PyTorch', 'ORT', 'amosc / PyTorch', 'amosc / ORT'], rows)


def first_steps(results):
    """Of the peers the first round, in which inductor compiles."""
    names = [name for name in results.names('step') if name != 'amosc']
    rows, best = [], []
    for model in results.models('step'):
        own, cached = (results.value('step', model, 'amosc', key) for key in ('first_s', 'cached_s'))
        found = {name: next(iter(results.of('step', model, name)), None) for name in names}
        firsts = [x['first_s'] + x.get('build_s', 0) for name, x in found.items()
                  if x and not results.is_wrong('step', model, name)]
        best.append(ratio(min(firsts, default=None), own))
        rows.append([model, *(f'{x:.2f}' if x else '-' for x in (own, cached)), *map(first_cell, found.values()),
                     ratio_text(best[-1])])
    rows.append(['geometric mean', '', '', *[''] * len(names), mean_text(best)])
    return table(['model', 'amosc', 'amosc, cached', *names, 'least / amosc'], rows)


def first_cell(result):
    if not result:
        return '-'
    build = f" + {result['build_s']:.1f}" if 'build_s' in result else ''
    return f"{result['first_s']:.1f}{build}"


def lines_of(results, kinds, models):
    """Profiled lines of some kinds, in medians of the rounds: {(model, shape, role): (launches, ms, share of FMA peak)}."""
    found = {}
    for model in models:
        for profile in results.of('profile', model, 'amosc'):
            for line in profile['products']:
                if line['kind'] in kinds:
                    of_peak = line['flops'] / line['seconds'] / profile['machine']['peak']['flops']
                    key = (model, line['shape'], line['role'])
                    found.setdefault(key, []).append((line['launches'], 1e3 * line['seconds'], of_peak))
    return {key: tuple(map(median, zip(*lines))) for key, lines in found.items()}


def share(lines):
    """The share of peak of several lines, weighted by time."""
    return sum(ms * fraction for _, ms, fraction in lines) / sum(ms for _, ms, _ in lines)


def convolutions(results):
    models = [m for m in ('resnet18', 'resnet50', 'cnn') if m in results.models('profile')]
    lines, rows = lines_of(results, ('dot',), models), []
    for model in models:
        for role in ('forward', 'data', 'weight'):
            own = sorted((value, key[1]) for key, value in lines.items() if key[0] == model and key[2] == role)
            own.sort(key=lambda line: -line[0][1])
            if own:
                rows.append([model, role, 'all', f'{sum(v[0] for v, _ in own):.0f}', f'{sum(v[1] for v, _ in own):.2f}',
                             f'{100 * share([v for v, _ in own]):.0f} %'])
            rows += [[model, role, shape, f'{v[0]:.0f}', f'{v[1]:.2f}', f'{100 * v[2]:.0f} %'] for v, shape in own[:6]]
    return table(['model', 'role', 'rows x columns x terms', 'launches', 'ms', 'of FMA peak'], rows)


def attentions(results):
    models = [m for m in SINGLE if m in results.models('profile')]
    lines = lines_of(results, ('dot', 'attend'), models)
    rows = [[model, shape, role, f'{ms:.2f}', f'{100 * fraction:.0f} %']
            for (model, shape, role), (_, ms, fraction) in lines.items()]
    return table(['attention', 'shape', 'role', 'ms', 'of FMA peak'], rows)


def kernels(results):
    """The products, convolutions and attentions of a step beside PyTorch's."""
    rows = []
    for model in results.models('kernels'):
        lines = lines_of(results, ('dot', 'attend'), [model])
        found = results.of('kernels', model, 'torch')
        for part, roles in (('forward', ('forward',)), ('backward', ('data', 'weight'))):
            own = [line for (_, _, role), line in lines.items() if role in roles]
            if own and found:
                ms, torch = sum(line[1] for line in own), 1e3 * median([x['kernels'][part] for x in found])
                rows.append([model, part, f'{ms:.2f}', f'{100 * share(own):.0f} %', f'{torch:.2f}',
                             f'{100 * share(own) * ms / torch:.0f} %', ratio_text(torch / ms)])
    return table(['model', 'part', 'amosc, ms', 'of FMA peak', 'PyTorch, ms', 'of FMA peak', 'PyTorch / amosc'], rows)


def products(results):
    torch, rows = results.of('products', '', 'torch'), []
    lines = [line for x in results.of('products', '', 'amosc') for line in x['lines']]
    for product in PRODUCTS:
        kind, shape = product.split(':')
        pattern = rf"f32 {kind} +{shape.replace('x', ' x +')} .*least +(\d+) %, median +(\d+) %, most +(\d+) % of peak, ([\d.]+)"
        found = [tuple(map(float, match.groups())) for match in (re.search(pattern, line) for line in lines) if match]
        if found:
            least, middle, most, peak = map(median, zip(*found))
            peer = f"{100 * median([x['gflops'][product] for x in torch]) / peak:.0f} %" if torch else '-'
            rows.append([f'{kind} {shape}', f'{least:.0f} %', f'{middle:.0f} %', f'{most:.0f} %', peer])
    return table(['product', 'amosc, least', 'median', 'most', 'PyTorch, median'], rows)


def updates(results):
    rows = []
    for model in results.models('update'):
        profiles = [x for x in results.of('profile', model, 'amosc') if x['updates']]
        torch = results.of('update', model, 'torch')
        if not profiles or not torch:
            continue
        count = torch[0]['parameters']
        own, bandwidth = (median([x['updates'][key] for x in profiles]) for key in ('seconds', 'fraction'))
        other = median([x['median_s'] for x in torch])
        place = median([x['machine']['peak']['bytes'] for x in profiles])
        rows.append([model, f'{1e9 * own / count:.3f}', f'{100 * bandwidth:.0f} %', f'{1e9 * other / count:.3f}',
                     f'{100 * 28 * count / other / place:.0f} %', ratio_text(other / own)])
    return table(['model', 'amosc (Amos), ns a parameter', 'of bandwidth in place', 'PyTorch fused AdamW, ns',
                  'of bandwidth in place', 'PyTorch / amosc'], rows)


def errors(results):
    lines = {(x['part'], x['model'], x['name'], x['error']) for x in results.lines if 'error' in x}
    return '\n'.join(f'- {part}, {model}, {name}: {error}' for part, model, name, error in sorted(lines)) or 'None.'


# ---- the report -----------------------------------------------------------------------

def bf16_by(flags):
    """What computes products of bf16, or '' for nothing that does."""
    return 'AMX tiles' if 'amx_bf16' in flags else 'AVX512-BF16' if 'avx512_bf16' in flags else ''


def masked(masks):
    """Says what masked features."""
    return f"""
Features are masked: amosc compiled for this CPU, and PyTorch ran with `{' '.join(masks)}`.
ONNX Runtime cannot be masked and is left out.
""" if masks else ''


def report(lines, cpu, flags, threads, version, words, masks=()):
    results = Results(lines)
    versions = sorted({x['version'] for x in lines if 'version' in x})
    features = ', '.join(f for f in FEATURES if f in flags)
    used = median([x['foreign'] for x in lines])
    step = results.models('step')
    rounds = max(len(results.of('step', model, 'amosc')) for model in step) if step else 0
    bf16 = f"Products run on: {bf16_by(flags)}.\n\n{steps(results, 'bf16')}" if results.models('bf16') else 'Not measured.'
    return f"""# {cpu}, {threads} threads

Made by `bench/run {words}` on {time.strftime('%Y-%m-%d')}: {version}, {', '.join(versions)}. Processor: {features}.
All train on the same batch with the same weights, by turns, in {rounds} round{'s' * (rounds > 1)}; times are medians.
Others, or the host, used {used:.2f} processors in the median. {LEGEND}
{masked(masks)}
PyTorch's settings: `eager` as installed; `t` with jemalloc and Intel's OpenMP preloaded, `tf` also with MKL's fast path on AMD's
processors; `compile` by inductor; `cl` channels last; `bf16` autocast. amosc trains with Amos, the others with AdamW (fused).

## A step in f32, ms
{steps(results, 'step')}

## A step in bf16, ms
{bf16}

## Peak memory of the process, MB
{memory(results)}

## From the start of the process to the end of the first step, s
ORT's second number is the time that its training artifacts took.

{first_steps(results)}

## The update
{updates(results)}

## Kernels of these steps, beside PyTorch's
Matrix products, convolutions, attention and recurrent layers. PyTorch's (eager, tuned, convolutions channels last) by its
profiler; both as parts of the FMA peak by amosc's count of operations. amosc's launches also compute what is fused to them: bias,
activation, BatchNorm, residual, masks, part of the loss.

{kernels(results)}

## Matrix products, one thread
As parts of the FMA peak that `bench_gemm` measures around them. amosc's products are called twice after each measurement of the peak,
with others between; PyTorch's a hundred times in a row, so its operands stay in the caches.

{products(results)}

## Convolutions, by role
The six shapes that take longest, of those of a role; `all` is weighted by time.

{convolutions(results)}

## Attention
Causal attention is counted by half. PyTorch's kernels are in the table of kernels.

{attentions(results)}

## Not measured
{errors(results)}
"""
