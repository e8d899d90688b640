"""amosc.optax: optimizers for JAX that know the scale and role of every parameter, from a report of
amosc eta.

    import amosc.optax
    optimizer = amosc.optax.amos("report.json", batches=1000, labels=32)

amos, muon, hyperball   transformations of Optax, for trees of parameters
averaged                the running mean that amos(..., average=8) trains toward
decay_mask              the mask of optax.adamw

Scales are by name: the keys of a leaf's path, joined by "." or "/", with or without a first
"params". `scales` is the path of a report by amosc eta --json or of an ONNX file with these names,
such a report, or a mapping from names, which may contain * and ?, to numbers or {"eta": ...,
"slots": [...]}.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Callable, Dict, NamedTuple, Sequence, Tuple, Union

import jax
import jax.numpy as jnp
import optax

from . import _scales

__all__ = ["amos", "averaged", "muon", "hyperball", "decay_mask", "newton_schulz"]

Rate = Union[float, Callable[[Any], Any]]
LEAST_V = 2.0**-125  # lower limit of v, as in the authors' code
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Keller Jordan's polynomial


# ---- rows by path -----------------------------------------------------------------------


def _keys(path: Sequence[Any]) -> list:
    """Returns the keys of a path of jax.tree_util as texts."""
    return [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path
    ]


class _Rows:
    """Rows of a report, or of a policy, by path."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]]):
        self._rows = rows

    def __call__(self, path: Sequence[Any]) -> Mapping[str, Any]:
        keys = _keys(path)
        names = [
            between.join(some)
            for some in (keys, keys[keys[:1] == ["params"] :])
            for between in "./"
        ]
        for name in names:
            if name in self._rows:
                return self._rows[name]
        for pattern, row in self._rows.items():
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return row
        raise KeyError(
            f"the scales have no parameter '{names[0]}'; they have "
            f"{', '.join(list(self._rows)[:5])}, ..."
        )


def _rows(report: Mapping[str, Any]) -> _Rows:
    return _Rows({row["name"]: row for row in report["params"]})


def _check(path: Sequence[Any], row: Mapping[str, Any], x: Any) -> None:
    if row.get("shape") is not None and tuple(row["shape"]) != x.shape:
        raise ValueError(
            f"parameter '{'.'.join(_keys(path))}': expected shape {tuple(row['shape'])} as in "
            "the scales, found "
            f"{x.shape}"
        )


def _check_numbers(*rates: Rate, **numbers: Any) -> None:
    """Fails unless hyperparameters of matrices are what the command takes."""
    _scales.check(**numbers)
    for rate in rates:
        if not callable(rate):
            _scales.check(learning_rate=rate)


def _at(rate: Rate, count: Any) -> Any:
    return rate(count) if callable(rate) else rate


def _type(x: Any) -> Any:
    """Returns the type of state and arithmetic: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)


# ---- Amos -------------------------------------------------------------------------------


class AmosState(NamedTuple):
    """count: steps made; v, b: one number per slot; m: running means of updates, or None; gap: the
    distances of the parameters from their running means, or None."""

    count: Any
    v: Any
    b: Any
    m: Any
    gap: Any


def _mean_square(x: Any, slots: Tuple[int, ...]) -> Any:
    over = tuple(axis for axis, size in enumerate(slots) if size != x.shape[axis])
    return jnp.mean(jnp.square(x), axis=over, keepdims=True) if over else jnp.square(x)


def _step(w: Any, g: Any, eta: Any, v: Any, b: Any, m: Any, gap: Any, t: Any, xi: Any,
          a: Dict[str, float]) -> Tuple[Any, Any, Any, Any, Any]:
    """Returns the update of one parameter, to be subtracted, and its next v, b, m and gap.
    compiler/book/optim.am has the equations; `a` has the settings."""
    if a["clip"]:
        g = jnp.clip(g, -a["clip"], a["clip"])
    s = _mean_square(g, v.shape)
    v = a["beta"] * v + (1 - a["beta"]) * s
    r = (1 - a["beta"] ** t) / jnp.maximum(v, LEAST_V)
    small = a["coef"] * jnp.sqrt(xi)
    gamma = xi * xi * (r * s) / jnp.sqrt(1 + small * b)
    d = 1 / (1 + small * jnp.sqrt(eta) * b)
    n = jnp.sqrt(r)
    if a["most"]:
        n = n / jnp.sqrt(jnp.maximum(jnp.mean(r * s) / a["most"], 1))
    e = eta
    if a["reach"]:
        e = jnp.clip(a["reach"] * jnp.sqrt(jnp.mean(jnp.square(w))), a["least"] * eta, eta)
    delta = d * (xi * e * n * g + (0.5 * a["strength"] * gamma + a["extra_l2"]) * w)
    b = b + a["pace"] * gamma * (1 + b)
    if m is not None:
        delta = m = a["momentum"] * m + (1 - a["momentum"]) * delta
    if gap is not None:
        part, share = a["average"] / (a["average"] + t - 1), 1 - a["mix"]
        moved = gap / share - delta  # from the mean to what the algorithm steps
        after = share * (1 - part) * moved
        delta, gap = gap - part * moved - after, after
    return delta, v, b, m, gap


def amos(scales: Any, learning_rate: Rate | None = None, *, batches: float | None = None,
         labels: float | None = None, beta: float | None = None, momentum: float | None = None,
         clip: float | None = None, extra_l2: float | None = None, warmup: float | None = None,
         average: float = 0, **options: Any) -> optax.GradientTransformation:
    """Returns the optimizer Amos (arXiv 2210.11693), with the settings that amosc train would
    choose.

    scales         see above
    learning_rate  xi, or a schedule of it (default: 1/sqrt(batches + 2000), or .01); if given,
                   other defaults are the paper's, which follow from the schedule's first value.
                   The warm-up multiplies it
    batches        N, the number of independent batches in the data; None: unknown, which selects
                   Algorithm 1
    labels         labels in a batch, over which the loss is a mean; None: gradients are not clipped
    beta, momentum, clip, extra_l2, warmup
                   as the options of amosc train
    average        train toward a running mean of the parameters over about the last 1/average of
                   all steps, which averaged() returns; amosc train has 8
    options        of amosc.eta(), if scales is a model
    """
    xi = _at(learning_rate, 0) if learning_rate is not None else None
    if callable(learning_rate) and not xi and beta is None:
        raise ValueError(
            "learning_rate: the schedule begins at 0, from which no beta follows\n"
            "  help: give beta, such as 1 - xi for the largest xi; with warmup=0, the schedule "
            "alone rises"
        )
    a = _scales.settings(
        batches,
        labels,
        xi=None if xi is None else float(xi),
        beta=beta,
        momentum=momentum,
        clip=clip,
        extra_l2=extra_l2,
        warmup=warmup,
        average=average,
    )
    rate: Rate = a["xi"] if learning_rate is None else learning_rate
    row_of = _rows(_scales.read(scales, **options))

    def slots(path: Sequence[Any], x: Any) -> Any:
        row = row_of(path)
        _check(path, row, x)
        _scales.check_eta(f"parameter '{'.'.join(_keys(path))}'", row["eta"])
        shape = row.get("slots")
        if shape is None and x.ndim > 1:
            name = ".".join(_keys(path))
            raise ValueError(
                f"parameter '{name}': expected the slots with its eta, such as [1, "
                f"{x.shape[-1]}] for a kernel "
                "[inputs, outputs]"
            )
        shape = shape or ()
        return jnp.zeros((1,) * (x.ndim - len(shape)) + tuple(shape), _type(x))

    def init(params: Any) -> AmosState:
        v = jax.tree_util.tree_map_with_path(slots, params)
        m, gap = (
            jax.tree_util.tree_map(lambda x: jnp.zeros(x.shape, _type(x)) if used else None, params)
            for used in (a["momentum"], a["average"])
        )
        b = jax.tree_util.tree_map(jnp.zeros_like, v)
        return AmosState(jnp.zeros((), jnp.int32), v, b, m, gap)

    def update(updates: Any, state: AmosState, params: Any = None) -> Tuple[Any, AmosState]:
        if params is None:
            raise ValueError("amos: update() needs params, as its decay does")
        t = state.count + 1
        warm = jnp.minimum(t / a["warmup"], 1) if a["warmup"] else 1.0
        now = _at(rate, state.count) * warm

        def one(path: Sequence[Any], w: Any, g: Any, v: Any, b: Any, m: Any,
                gap: Any) -> Tuple[Any, ...]:
            kind = _type(w)
            eta = jnp.asarray(row_of(path)["eta"], kind)
            delta, *after = _step(
                w.astype(kind),
                g.astype(kind),
                eta,
                v,
                b,
                m,
                gap,
                t.astype(kind),
                jnp.asarray(now, kind),
                a,
            )
            return (-delta.astype(w.dtype), *after)

        leaves, form = jax.tree_util.tree_flatten_with_path(params)
        others = [form.flatten_up_to(tree) for tree in (updates, *state[1:])]
        made = [one(path, w, *rest) for (path, w), *rest in zip(leaves, *others)]
        delta, *after = (form.unflatten([row[k] for row in made]) for k in range(5))
        return delta, AmosState(t, *after)

    return optax.GradientTransformation(init, update)


def averaged(params: Any, state: AmosState) -> Any:
    """Returns the running mean of the parameters that amos(..., average=K) trains toward, to
    evaluate and to save; without `average`, the parameters."""
    leaves, form = jax.tree_util.tree_flatten(params)
    gaps = form.flatten_up_to(state.gap)
    return form.unflatten(
        [w if gap is None else (w - gap).astype(w.dtype) for w, gap in zip(leaves, gaps)]
    )


# ---- matrices: Muon, Hyperball ----------------------------------------------------------


def newton_schulz(x: Any, steps: int = 5, coefficients: Sequence[float] = COEFFICIENTS,
                  dtype: Any = jnp.bfloat16, eps: float = 1e-7) -> Any:
    """Returns x [count, rows, columns] with the singular values of every matrix moved near 1:
    Muon's iteration."""
    a, b, c = coefficients
    tall = x.shape[-2] > x.shape[-1]
    y = x.astype(dtype)
    y = y.mT if tall else y
    y = y / (jnp.linalg.norm(y, axis=(-2, -1), keepdims=True) + eps)
    for _ in range(steps):
        square = y @ y.mT
        y = a * y + (b * square + c * (square @ square)) @ y
    return (y.mT if tall else y).astype(x.dtype)


def _unit(x: Any) -> Any:
    """Returns matrices [count, rows, columns] with Frobenius norms of 1; zeros stay zeros."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=(1, 2), keepdims=True), jnp.finfo(x.dtype).tiny)


def _each(row: Mapping[str, Any], change: Callable[..., Any], x: Any, *others: Any) -> Any:
    """Returns x with change(matrix, entry of the policy, matrices of others) in place of each
    matrix of a parameter."""
    for one in row["matrices"]:
        index = jnp.asarray([i for first, last in one["ranges"] for i in range(first, last)])
        at, order = (slice(None),) * one["axis"] + (index,), one["order"]
        parts = [y[at].transpose(order) for y in (x, *others)]
        matrices = [part.reshape(one["count"], one["rows"], one["columns"]) for part in parts]
        made = change(matrices[0], one, *matrices[1:]).reshape(parts[0].shape)
        x = x.at[at].set(made.transpose([order.index(axis) for axis in range(x.ndim)]))
    return x


def _momentum(decay: float, nesterov: bool) -> optax.GradientTransformation:
    """Returns running means of gradients, with Nesterov's correction."""

    def init(params: Any) -> Any:
        return jax.tree_util.tree_map(lambda x: jnp.zeros(x.shape, _type(x)), params)

    def update(updates: Any, state: Any, params: Any = None) -> Tuple[Any, Any]:
        mean = jax.tree_util.tree_map(lambda m, g: decay * m + (1 - decay) * g, state, updates)
        look = (
            jax.tree_util.tree_map(lambda m, g: decay * m + (1 - decay) * g, mean, updates)
            if nesterov
            else mean
        )
        return look, mean

    return optax.GradientTransformation(init, update)


def _by_role(report: Mapping[str, Any], target: str,
             matrices: Callable[[_Rows], optax.GradientTransformation],
             adam: Callable[[float], optax.GradientTransformation],
             decays: Dict[str, float]) -> optax.GradientTransformation:
    """Returns a transformation of hidden matrices by `matrices`, and of other parameters by `adam`
    of their decay."""
    policy, decay = _Rows(_scales.policy(report, target)), _Rows(
        _scales.policy(report, "adamw-groups")
    )

    def label(path: Sequence[Any], x: Any) -> str:
        row = policy(path)
        _check(path, row, x)
        return target if row["matrices"] else decay(path)["group"]

    parts = {role: adam(decays.get(role, 0.0)) for role in ("decay", "table", "no_decay")}
    return optax.multi_transform(
        {target: matrices(policy), **parts},
        lambda params: jax.tree_util.tree_map_with_path(label, params),
    )


def muon(scales: Any, learning_rate: Rate = 0.02, *, weight_decay: float = 0.0,
         factor: str = "factor", momentum: float = 0.95, nesterov: bool = True,
         ns_steps: int = 5, ns_coefficients: Sequence[float] = COEFFICIENTS,
         ns_dtype: Any = jnp.bfloat16, adam_learning_rate: Rate = 3e-4, b1: float = 0.9,
         b2: float = 0.95, eps: float = 1e-10, table_decay: float = 0.0,
         **options: Any) -> optax.GradientTransformation:
    """Returns Muon for hidden matrices, piece by piece, and AdamW for the other parameters, by
    their roles in a graph.

    The arguments are those of amosc.torch.Muon. `scales` must be a report or a model: numbers have
    no roles.
    """
    _check_numbers(learning_rate, adam_learning_rate, weight_decay=weight_decay, momentum=momentum,
                   ns_steps=ns_steps, b1=b1, b2=b2, eps=eps, table_decay=table_decay)
    if factor not in ("factor", "rms_factor"):
        raise ValueError(f"factor: expected 'factor' or 'rms_factor', found '{factor}'")

    def orthogonal(rows: _Rows) -> optax.GradientTransformation:
        def one(path: Sequence[Any], x: Any) -> Any:
            return _each(
                rows(path),
                lambda y, entry: entry[factor]
                * newton_schulz(y, ns_steps, ns_coefficients, ns_dtype),
                x,
            )

        return optax.chain(
            _momentum(momentum, nesterov),
            optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(one, updates)),
            optax.add_decayed_weights(weight_decay),
            optax.scale_by_learning_rate(learning_rate),
        )

    return _by_role(
        _scales.read(scales, **options),
        "muon",
        orthogonal,
        lambda decay: optax.adamw(adam_learning_rate, b1, b2, eps, weight_decay=decay),
        {"decay": weight_decay, "table": table_decay},
    )


class HyperballState(NamedTuple):
    """count: steps made; base: state of the base optimizer."""

    count: Any
    base: Any


def hyperball(scales: Any, learning_rate: Rate = 0.02, *, base: str = "muon",
              momentum: float = 0.95, nesterov: bool = True, ns_steps: int = 5,
              ns_coefficients: Sequence[float] = COEFFICIENTS, ns_dtype: Any = jnp.bfloat16,
              adam_learning_rate: Rate = 6e-4, b1: float = 0.9, b2: float = 0.95,
              eps: float = 1e-8, weight_decay: float = 0.0, table_decay: float = 0.0,
              **options: Any) -> optax.GradientTransformation:
    """Returns Hyperball (arXiv 2606.16899) for hidden matrices and AdamW for the other parameters,
    by their roles in a graph.

    The arguments are those of amosc.torch.Hyperball; the radius is the norm at the expected scale.
    """
    _check_numbers(learning_rate, adam_learning_rate, weight_decay=weight_decay, momentum=momentum,
                   ns_steps=ns_steps, b1=b1, b2=b2, eps=eps, table_decay=table_decay)
    if base not in ("muon", "adam"):
        raise ValueError(f"base: expected 'muon' or 'adam', found '{base}'")

    def ball(rows: _Rows) -> optax.GradientTransformation:
        direction = (
            _momentum(momentum, nesterov) if base == "muon" else optax.scale_by_adam(b1, b2, eps)
        )

        def moved(entry: Mapping[str, Any], w: Any, u: Any, rate: Any) -> Any:
            u = newton_schulz(u, ns_steps, ns_coefficients, ns_dtype) if base == "muon" else u
            return entry["radius"] * _unit(_unit(w) - rate * _unit(u))

        def update(updates: Any, state: HyperballState,
                   params: Any = None) -> Tuple[Any, HyperballState]:
            if params is None:
                raise ValueError("hyperball: update() needs params, as it fixes their norms")
            updates, after = direction.update(updates, state.base, params)
            rate = _at(learning_rate, state.count)

            def one(path: Sequence[Any], w: Any, u: Any) -> Any:
                return (
                    _each(
                        rows(path),
                        lambda y, entry, z: moved(entry, y, z, rate),
                        w,
                        u.astype(w.dtype),
                    )
                    - w
                )

            made = jax.tree_util.tree_map_with_path(one, params, updates)
            return made, HyperballState(state.count + 1, after)

        return optax.GradientTransformation(
            lambda params: HyperballState(jnp.zeros((), jnp.int32), direction.init(params)), update
        )

    return _by_role(
        _scales.read(scales, **options),
        "hyperball",
        ball,
        lambda decay: optax.adamw(adam_learning_rate, b1, b2, eps, weight_decay=decay),
        {"decay": weight_decay, "table": table_decay},
    )


def decay_mask(scales: Any, tables: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Returns the mask of optax.adamw: true for kernels, and for tables if asked."""
    rows = _Rows(_scales.policy(_scales.read(scales, **options), "adamw-groups"))
    groups = ("decay", "table") if tables else ("decay",)
    return lambda params: jax.tree_util.tree_map_with_path(
        lambda path, _: rows(path)["group"] in groups, params
    )
