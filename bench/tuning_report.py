"""Writes what tuning measured: tables in Markdown and figures."""
import math
import os
import statistics
from study import Curve, Panel, figure, mean_curve, table

FOUND = '## What was found'  # begins the part of tuning.md that a person writes
SHOWN = ('amos', 'adamw', 'muon', 'schedulefree', 'hyperball')  # in the curves
RATIOS = [1 + k / 20 for k in range(61)]  # of times, in the profiles


class Study:
    """The runs by task and optimizer, at the optimizer's defaults or at its best of the search."""
    def __init__(self, runs, tasks, optimizers, configurations, best):
        self.runs, self.tasks, self.optimizers = runs, tasks, optimizers
        self.configurations, self.best = configurations, best
        self.seeds = sorted({r['seed'] for r in runs})

    def options(self, task, optimizer, tuned):
        """(configuration, options), or None if a run of the search is missing."""
        if tuned:
            return self.best(self.runs, task, optimizer)
        return self.configurations(optimizer, self.tasks[task])[0]

    def of(self, task, optimizer, tuned=False):
        """Its runs, one for each seed."""
        found = self.options(task, optimizer, tuned)
        return self.runs_of(task, *found) if found else []

    def runs_of(self, task, configuration, options):
        runs = [self.runs.get(task, configuration, seed, options) for seed in self.seeds]
        return [r for r in runs if r]

    def finals(self, task, optimizer, tuned=False):
        return losses_of(self.of(task, optimizer, tuned))

    def target(self, task):
        """Tuned AdamW's mean held-out loss plus a standard deviation; None without two seeds."""
        found = self.finals(task, 'adamw', True)
        return statistics.fmean(found) + statistics.stdev(found) if len(found) > 1 else None

    def steps_to_target(self, task, optimizer, tuned):
        """Updates to the target, median over seeds; infinite if not reached; None without a run."""
        target = self.target(task)
        reached = [next((step for step, loss, _ in r['evaluations'] if loss <= target), math.inf)
                   for r in self.of(task, optimizer, tuned)]
        return statistics.median_low(reached) if reached else None

    def seconds_per_step(self, task, optimizer):
        """The least of all runs of the optimizer: others also compiled, or were disturbed."""
        return min(r['cpu_s'] / r['steps'] for r in self.runs if r['task'] == task and r['steps']
                   and r['configuration'].split()[0] == optimizer)


def losses_of(runs):
    """Final losses; infinite if training diverged."""
    return [math.inf if r['final'] is None else r['final'] for r in runs]


def noise(a, b):
    """Two standard errors of the difference of two means; None without two values each."""
    if min(len(a), len(b)) < 2 or not all(map(math.isfinite, a + b)):
        return None
    return 2 * math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))


def verdict(a, b):
    """How `a` compares with `b`: better, level, worse, or ? without two values each."""
    if len(a) > 1 and len(b) > 1 and not all(map(math.isfinite, a)):
        return 'worse'
    width = noise(a, b)
    if width is None:
        return '?'
    difference = statistics.fmean(a) - statistics.fmean(b)
    return 'level' if abs(difference) <= width else 'better' if difference < 0 else 'worse'


# ---- cells ----------------------------------------------------------------------------

def number(value):
    if value is None or math.isinf(value):
        return '-' if value is None else 'diverged'
    return f'{value:.4g}' if value >= 1 else f'{value:.3g}'


def cell(values):
    """The mean, and half the range over seeds."""
    if not values:
        return '-'
    mean = number(statistics.fmean(values))
    if len(values) < 2 or not math.isfinite(max(values)):
        return mean
    return f'{mean} ± {(max(values) - min(values)) / 2:.1g}'


def counted(words):
    return ', '.join(f'{words.count(word)} {word}' for word in dict.fromkeys(words))


# ---- tables ---------------------------------------------------------------------------

def share(verdicts):
    judged = [v for v in verdicts if v != '?']
    return f'{len(judged) - judged.count("worse")} of {len(judged)}' if judged else '-'


def against_adamw(study):
    rows, verdicts = [], {}
    for task in study.tasks:
        own, plain = (study.finals(task, name) for name in ('amos', 'adamw'))
        best = study.finals(task, 'adamw', True)
        verdicts[task] = verdict(own, best)
        chosen = study.options(task, 'adamw', True)
        options = chosen[0].removeprefix('adamw').strip() or 'defaults' if chosen else '-'
        rows.append([task, cell(own), cell(plain), cell(best), options, number(noise(own, best)),
                     verdicts[task], verdict(own, plain)])
    head = ['task', 'Amos', 'AdamW', 'AdamW, tuned', 'its options', 'noise',
            'Amos to tuned AdamW', 'Amos to AdamW']
    return table(head, rows), verdicts


def searches(study, optimizer):
    """Final loss of each configuration of an optimizer's search; the least mean is bold.

    The last row is on how many of the judged tasks it is level with the tuned AdamW, or better;
    AdamW's table has none.
    """
    names = [name for name, _ in study.configurations(optimizer, next(iter(study.tasks.values())))]
    rows, verdicts = [], []
    for task, what in study.tasks.items():
        found = [losses_of(study.runs_of(task, *c)) for c in study.configurations(optimizer, what)]
        target = study.finals(task, 'adamw', True)
        verdicts.append([verdict(values, target) for values in found])
        least = min((statistics.fmean(values) for values in found if values), default=None)
        rows.append([task, *(f'**{cell(values)}**' if values and statistics.fmean(values) == least
                             else cell(values) for values in found)])
    if optimizer != 'adamw':
        rows.append(['level or better', *map(share, zip(*verdicts))])
    return table(['task', *(name.removeprefix(optimizer).strip() or 'defaults' for name in names)],
                 rows)


def losses(study, tuned):
    """The least mean of each task is bold, the greatest is in italics."""
    names = [o for o in study.optimizers if any(study.finals(t, o, tuned) for t in study.tasks)]
    rows = []
    for task in study.tasks:
        values = {o: study.finals(task, o, tuned) for o in names}
        means = {o: statistics.fmean(v) for o, v in values.items() if v}
        if not means:
            continue
        mark = {max(means, key=means.get): '*{}*', min(means, key=means.get): '**{}**'}
        rows.append([task, *(mark.get(o, '{}').format(cell(values[o])) for o in names)])
    return table(['task', *names], rows)


def ranks(study):
    """The mean rank of each optimizer by final loss, and how often it is the best or the worst."""
    tables = {}
    for tuned in (False, True):
        names = [o for o in study.optimizers
                 if all(study.finals(t, o, tuned) for t in study.tasks)]
        orders = [sorted(names, key=lambda o: statistics.fmean(study.finals(t, o, tuned)))
                  for t in study.tasks]
        tables[tuned] = {o: [order.index(o) + 1 for order in orders] for o in names}
    rows = [[o, *rank_cells(tables[False], o), *rank_cells(tables[True], o)]
            for o in study.optimizers]
    return table(['optimizer', 'rank at defaults', 'best on', 'worst on', 'rank tuned', 'best on',
                  'worst on'], rows)


def rank_cells(ranks_of, name):
    found = ranks_of.get(name)
    if not found:
        return ['-', '-', '-']
    return [f'{statistics.fmean(found):.1f}', str(found.count(1)), str(found.count(len(ranks_of)))]


def times(study, tuned):
    """{optimizer: {task: updates to its target}}, of optimizers that ran on all such tasks."""
    tasks = [t for t in study.tasks if study.target(t) is not None]
    found = {o: {t: study.steps_to_target(t, o, tuned) for t in tasks} for o in study.optimizers}
    return {o: by for o, by in found.items() if tasks and None not in by.values()}


def time_table(study, found):
    names = [(o, tuned) for tuned in (False, True) for o in found[tuned]]
    rows = []
    for task in study.tasks:
        if study.target(task) is not None:
            steps = [found[tuned][o][task] for o, tuned in names]
            rows.append([task, number(study.target(task)),
                         *('-' if math.isinf(s) else str(s) for s in steps)])
    return table(['task', 'target', *(o + ', tuned' * tuned for o, tuned in names)], rows)


def tasks_table(study):
    rows = []
    for name, task in study.tasks.items():
        run = next((r for r in study.of(name, 'amos')), None)
        rows.append([name, task.what, str(task.steps), f"`{run['command']}`" if run else '-'])
    return table(['task', 'what', 'updates', "Amos's command, of seed 0"], rows)


def search_table(study):
    task, rows = next(iter(study.tasks.values())), []
    for o in study.optimizers:
        found = [name.split()[1:] for name, _ in study.configurations(o, task)[1:]]
        rows.append([o, ', '.join(f'`{" ".join("--" + word for word in words)}`'
                                  for words in found)])
    return table(['optimizer', 'search'], rows)


def missing(study):
    rows = []
    for o in study.optimizers:
        no_default = [t for t in study.tasks if not study.of(t, o)]
        no_search = [t for t in study.tasks if not study.of(t, o, True)]
        few = [t for t in study.tasks if any(0 < len(study.of(t, o, tuned)) < len(study.seeds)
                                             for tuned in (False, True))]
        rows.append([o, *(listed(names, study.tasks) for names in (no_default, no_search, few))])
    return table(['optimizer', 'no run at defaults', 'no complete search', 'fewer seeds'], rows)


def listed(names, tasks):
    return 'all' if len(names) == len(tasks) else ', '.join(names) or 'none'


# ---- figures --------------------------------------------------------------------------

def curves(study):
    panels = []
    for name, task in study.tasks.items():
        drawn = [(o, False) for o in SHOWN] + [('adamw', True)]
        drawn = [(o, tuned, study.of(name, o, tuned)) for o, tuned in drawn]
        lines = [mean_curve(o + ', tuned' * tuned, runs) for o, tuned, runs in drawn if runs]
        lines = [c for c in lines if c.points]
        high = max((c.points[0][1] for c in lines), default=None)
        panels.append(Panel(f'{name}: {task.what}', lines, log='y', high=high))
    return figure(panels, 4, 320, 240)


def profiles(study, found):
    """The part of the tasks on which an optimizer takes at most x times the least time of all."""
    panels = []
    for unit in ('steps', 'CPU seconds'):
        spent, least = {}, {}
        for tuned in (False, True):
            for o, by in found[tuned].items():
                for t, steps in by.items():
                    time = steps * (1 if unit == 'steps' else study.seconds_per_step(t, o))
                    spent[o, tuned, t], least[t] = time, min(time, least.get(t, math.inf))
        for tuned in (False, True):
            lines = []
            for o, by in found[tuned].items():
                ratios = [spent[o, tuned, t] / least[t] for t in by if math.isfinite(least[t])]
                lines.append(Curve(o, profile(ratios), style='stairs'))
            panels.append(Panel(f'{"tuned" if tuned else "defaults"}, {unit} to target', lines,
                                x='times the least of all', y='part of the tasks', low=0, high=1))
    return figure(panels, 2, 480, 320)


def profile(ratios):
    return [(x, sum(r <= x for r in ratios) / max(1, len(ratios))) for x in RATIOS]


# ---- the report -----------------------------------------------------------------------

def summary(study, verdicts):
    judged = [v for v in verdicts.values() if v != '?']
    worst = [t for t in study.tasks if is_worst(study, t)]
    return f"""Amos without options is within noise of the best tuned AdamW, or better, on \
{share(judged)} tasks ({counted(judged)}; \
{len(verdicts) - len(judged)} not judged).
Of the optimizers that ran at their defaults it ends worst on {len(worst)}{': ' * bool(worst)}\
{', '.join(worst)}."""


def is_worst(study, task):
    means = {o: statistics.fmean(v) for o in study.optimizers if (v := study.finals(task, o))}
    return len(means) > 2 and max(means, key=means.get) == 'amos'


def write(study, folder, found):
    """Writes tuning.md, with `found` as its last part, and its figures."""
    versions = sorted({f"{r['version']} ({r['commit']})" for r in study.runs})
    compared, verdicts = against_adamw(study)
    reached = {tuned: times(study, tuned) for tuned in (False, True)}
    os.makedirs(os.path.join(folder, 'plots'), exist_ok=True)
    for name, picture in (('curves', curves(study)), ('profiles', profiles(study, reached))):
        with open(os.path.join(folder, 'plots', f'tuning-{name}.svg'), 'w') as f:
            f.write(picture)
    with open(os.path.join(folder, 'tuning.md'), 'w') as f:
        f.write(f"""# Nothing to tune?

{summary(study, verdicts)}

`bench/tuning FOLDER` wrote this page, from {len(list(study.runs))} runs of amosc \
{', '.join(versions)}; `tuning.jsonl` has the
seed, the command and the evaluations of each. A loss is that of held-out data at the end of
training, the mean over seeds 0 to 2 (± half their range), or over fewer seeds, which the last
table lists. *Tuned* is the configuration of the search below that ends best with seed 0; the search
includes the defaults. The held-out data thus choose it, which favors the tuned. *Noise* is two
standard errors of the difference of the means; a smaller difference is *level*.

## Amos beside AdamW
{compared}

![held-out loss by step](plots/tuning-curves.svg)

Held-out loss by step, mean and range over seeds; all at their defaults, but for the tuned AdamW.
The commands are below.

## Time to target
Updates until an evaluation first reaches the target, as AlgoPerf measures: the final held-out loss
of the tuned AdamW plus one standard deviation. `-`: never. Medians over seeds. CPU seconds are at
the speed of the optimizer's fastest run of the task. Optimizers without all runs are left out.

{time_table(study, reached)}

![performance profiles](plots/tuning-profiles.svg)

The part of the tasks on which an optimizer takes at most x times the least time of all, the tuned
ones included; seeds 0 to 2.

## Ranks
By final loss, among the optimizers that have a run of every task.

{ranks(study)}

## Every optimizer at its defaults
Bold: the least; in italics: the greatest.

{losses(study, False)}

## Every optimizer at its best of the search
{losses(study, True)}

## The search of Amos
The last row: on how many tasks it is level with the tuned AdamW, or better.

{searches(study, 'amos')}

## The search of AdamW
{searches(study, 'adamw')}

## Tasks and commands
The tasks up to `bert_tuned` are equivalents of those by which the defaults of Amos were chosen; the
others took no part. `models/tasks.py` makes models and data, in FOLDER, where the commands run.

{tasks_table(study)}

The search; except for Amos and Prodigy it sets the warm-up to a tenth of the updates, at most 100:

{search_table(study)}

## Missing
{missing(study)}

{found}""")
