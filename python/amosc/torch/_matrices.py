"""_matrices.py: optimizers of hidden matrices, Muon and Hyperball, with AdamW for the other
parameters."""

from __future__ import annotations

import math
import warnings
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from .. import _scales as by_name
from ._base import Optimizer, Rows, state_type
from ._fused import Rule
from ._scales import ScaleWarning, resolve

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Keller Jordan's polynomial
# Of the Newton-Schulz iteration that amosc compiles.
COMPILED = {
    "nesterov": True,
    "ns_steps": 5,
    "ns_coefficients": COEFFICIENTS,
    "ns_dtype": torch.float32,
}
Piece = Tuple[
    int, Mapping[str, Any], torch.Tensor
]  # index in a list; entry in the report; [count, rows, columns]


def newton_schulz(x: torch.Tensor, steps: int = 5, coefficients: Sequence[float] = COEFFICIENTS,
                  dtype: torch.dtype = torch.bfloat16, eps: float = 1e-7) -> torch.Tensor:
    """Returns x [count, rows, columns] with the singular values of every matrix moved near 1:
    Muon's iteration."""
    a, b, c = coefficients
    tall = x.shape[-2] > x.shape[-1]
    y = x.to(dtype)
    if tall:
        y = y.mT
    y = y / (torch.linalg.matrix_norm(y, keepdim=True) + eps)
    for _ in range(steps):
        square = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(square, square, square, beta=b, alpha=c), y, beta=a)
    return (y.mT if tall else y).to(x.dtype)


def _index(matrix: Mapping[str, Any], device: torch.device) -> Any:
    """Returns the elements of a matrix along its axis: a slice, or a tensor of indices if they are
    not adjacent."""
    if len(matrix["ranges"]) == 1:
        return slice(*matrix["ranges"][0])
    return torch.cat([torch.arange(first, last, device=device) for first, last in matrix["ranges"]])


def cut(x: torch.Tensor, matrix: Mapping[str, Any]) -> torch.Tensor:
    """Returns one of the matrices of a parameter, [count, rows, columns]: `matrix` is its entry in
    the report."""
    part = x[(slice(None),) * matrix["axis"] + (_index(matrix, x.device),)]
    return part.permute(matrix["order"]).reshape(matrix["count"], matrix["rows"], matrix["columns"])


def put(x: torch.Tensor, matrix: Mapping[str, Any], value: torch.Tensor) -> None:
    """Writes one of the matrices of a parameter."""
    at = (slice(None),) * matrix["axis"] + (_index(matrix, x.device),)
    order = matrix["order"]
    shape = [x[at].shape[axis] for axis in order]
    x[at] = value.reshape(shape).permute([order.index(axis) for axis in range(len(order))])


def _unit(x: torch.Tensor) -> torch.Tensor:
    """Returns matrices [count, rows, columns] with Frobenius norms of 1; zeros stay zeros."""
    return x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def pieces(x: List[torch.Tensor], rows: Rows, group: Dict[str, Any]) -> List[Piece]:
    """Returns the matrices of tensors that have the shapes of parameters."""
    return [
        (i, matrix, cut(x[i], matrix))
        for i, (at, _) in enumerate(rows)
        for matrix in group["matrices"][at]
    ]


def orthogonal(x: List[torch.Tensor], rows: Rows, group: Dict[str, Any]) -> List[Piece]:
    """Returns newton_schulz() of these matrices, of equal shapes at once."""
    alike: Dict[Any, List[Piece]] = {}
    for piece in pieces(x, rows, group):
        alike.setdefault(piece[2].shape[1:], []).append(piece)
    made = []
    for some in alike.values():
        parts = [part for _, _, part in some]
        stack = newton_schulz(
            torch.cat(parts), group["ns_steps"], group["ns_coefficients"], group["ns_dtype"]
        )
        split = stack.split([len(part) for part in parts])
        made += [(i, matrix, part) for (i, matrix, _), part in zip(some, split)]
    return made


class _Matrices(Optimizer):
    """Groups of two kinds: hidden matrices, with the key "matrices", and parameters for AdamW,
    without."""

    target = ""  # of amosc eta --for
    own = ("_policy", "_decay", "_adam", "_scales")
    compiled: Dict[str, Any] = {}  # settings of matrices that programs of fused=True have

    def __init__(self, params: Any, example_inputs: Any, module: Optional[torch.nn.Module],
                 scales: Any, options: Mapping[str, Any], defaults: Dict[str, Any],
                 adam: Dict[str, Any]):
        by_name.check(adam_lr=adam["lr"], table_decay=adam["decays"]["table"],
                      weight_decay=adam["decays"]["decay"])
        groups, self._scales = resolve(params, example_inputs, module, scales, options)
        self._policy = self._scales.policy(self.target)
        self._decay, self._adam = self._scales.policy("adamw-groups"), adam
        super().__init__(groups, dict(defaults, matrices=None, role="unused"))

    @property
    def report(self) -> Any:
        """The eta report that the groups come from."""
        return self._scales.report

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds the groups into which roles divide one. Its keys are for what the arguments of these
        names are for: lr for matrices and weight_decay for kernels, if it has some."""
        params = param_group["params"]
        given = {key: param_group.pop(key) for key in ("adam_lr", "table_decay")
                 if key in param_group}
        by_name.check(**given)
        parts: Dict[str, Dict[str, Any]] = {}
        for one in [params] if isinstance(params, torch.Tensor) else params:
            parameter = one[1] if isinstance(one, tuple) else one
            policy = self._policy.get(parameter)
            if policy and policy["matrices"]:
                part = parts.setdefault(
                    self.target, dict(param_group, params=[], matrices=[], role=self.target)
                )
                part["matrices"].append(policy["matrices"])
            else:
                role = self._decay[parameter]["group"] if policy else "unused"
                part = parts.setdefault(role, dict(param_group, params=[], role=role))
            part["params"].append(one)
        for role, part in parts.items():
            if role != self.target:
                part.update(self._adam_settings(role, param_group, given, parts.keys()))
            super().add_param_group(part)

    def _adam_settings(self, role: str, group: Mapping[str, Any], given: Mapping[str, Any],
                       roles: Collection[str]) -> Dict[str, Any]:
        """Returns the rate and the decay of parameters of a role, in a group with these roles."""
        lr, decay = self._adam["lr"], self._adam["decays"].get(role, 0.0)
        if self.target not in roles:
            lr = group.get("lr", lr)
        if role == "decay" or not {self.target, "decay"} & set(roles):
            decay = group.get("weight_decay", decay)
        if role == "table":
            decay = given.get("table_decay", decay)
        return {"lr": given.get("adam_lr", lr), "weight_decay": decay}

    def update(self, rows: Rows, w: List[torch.Tensor], g: List[torch.Tensor], t: int,
               group: Dict[str, Any]) -> None:
        if group["matrices"] is not None:
            self.update_matrices(rows, w, g, group, t)
            return
        self._warn_unused(rows, group)
        lr = float(group["lr"])
        updates = self._adam_updates(rows, g, group, t)
        torch._foreach_mul_(w, 1 - lr * group["weight_decay"])
        torch._foreach_add_(w, updates, alpha=-lr)

    def update_matrices(self, rows: Rows, w: List[torch.Tensor], g: List[torch.Tensor],
                        group: Dict[str, Any], t: int) -> None:
        raise NotImplementedError

    def _warn_unused(self, rows: Rows, group: Dict[str, Any]) -> None:
        if group["role"] != "unused":
            return
        names = [
            group["param_names"][i] if "param_names" in group else f"parameter {i}" for i, _ in rows
        ]
        warnings.warn(
            f"{', '.join(names)}: there are gradients, but the graph that roles were inferred "
            "from does not use these parameters; AdamW trains them, without weight decay",
            ScaleWarning,
            stacklevel=5,
        )
        group["role"] = "no_decay"

    def settings(self, group: Dict[str, Any], indices: List[int]) -> Dict[str, Any]:
        matrices = ("momentum", "weight_decay", *self.compiled)
        names = matrices if group["matrices"] is not None else ("betas", "eps", "weight_decay")
        return {name: group[name] for name in names}

    def rule(self, group: Dict[str, Any]) -> Rule:
        if group["matrices"] is None:
            beta, beta2 = group["betas"]
            options = dict(optimizer="adamw", rate=1, warmup=0, beta=beta, beta2=beta2,
                           eps=group["eps"], decay=0, other_decay=group["weight_decay"])
            state = {"exp_avg": "m", "exp_avg_sq": "s"}
            return Rule(options, 1.0, state, {"amos.beta_t": beta, "amos.beta2_t": beta2})
        for name, value in self.compiled.items():
            if group[name] != value:
                raise ValueError(
                    f"fused: {name}: expected {value}, which is compiled, found {group[name]}\n"
                    f"  help: {name}={value!r}, or fused=False"
                )
        options = dict(optimizer=self.target, rate=1, warmup=0, momentum=group["momentum"],
                       decay=group["weight_decay"])
        return Rule(options, 1.0, {"momentum_buffer": "m"}, {})

    def report_row(self, group: Dict[str, Any], i: int,
                   parameter: torch.Tensor) -> Mapping[str, Any]:
        if group["matrices"] is not None:
            return self._scales.row(parameter) or {}  # which all parameters of such groups have
        self._warn_unused(list(self.gradients(group)), group)
        shape = list(parameter.shape)
        return {"role": "", "shape": shape, "eta": 1, "formula": "", "slots": shape, "why": []}

    def _running(self, rows: Rows, key: str) -> List[torch.Tensor]:
        """Returns state `key` of parameters, zeros at first, in their shapes."""
        for _, parameter in rows:
            if key not in self.state[parameter]:
                self.state[parameter][key] = torch.zeros_like(
                    parameter, dtype=state_type(parameter)
                )
        return [self.state[parameter][key] for _, parameter in rows]

    def _adam_updates(self, rows: Rows, g: List[torch.Tensor], group: Dict[str, Any],
                      t: int) -> List[torch.Tensor]:
        """Returns Adam's updates, to be subtracted times the rate."""
        (beta, beta2), m, s = (
            group["betas"],
            self._running(rows, "exp_avg"),
            self._running(rows, "exp_avg_sq"),
        )
        torch._foreach_lerp_(m, g, 1 - beta)
        torch._foreach_mul_(s, beta2)
        torch._foreach_addcmul_(s, g, g, 1 - beta2)
        root = torch._foreach_sqrt(s)
        torch._foreach_div_(root, math.sqrt(1 - beta2**t))
        torch._foreach_add_(root, group["eps"])
        torch._foreach_mul_(root, 1 - beta**t)
        return list(torch._foreach_div(m, root))

    def _momenta(self, rows: Rows, g: List[torch.Tensor],
                 group: Dict[str, Any]) -> List[torch.Tensor]:
        """Returns the running means of the gradients, with Nesterov's correction."""
        means = self._running(rows, "momentum_buffer")
        torch._foreach_lerp_(means, g, 1 - group["momentum"])
        return (
            list(torch._foreach_lerp(g, means, group["momentum"])) if group["nesterov"] else means
        )


class Muon(_Matrices):
    """Muon for the hidden matrices of a module, AdamW for the other parameters, both by its graph.

        optimizer = Muon(model, (x,), lr=0.02)

    Tables, biases, factors, kernels that read an input and those that make an output go to AdamW. A
    kernel that holds several matrices (queries, keys and values; gates; experts) is updated as
    these matrices.

    params, example_inputs, module, scales, foreach, fused, options
                    as of Amos; fused with ns_dtype=torch.float32 and the defaults of other settings
                    of the iteration
    lr              the learning rate of matrices
    weight_decay    per step, times lr; of kernels that AdamW trains, too
    factor          "factor", sqrt(max(1, rows / columns)), that of Keller Jordan; or "rms_factor",
                    0.2 sqrt(max(rows, columns)), with which one lr suits Muon and AdamW
    momentum, nesterov, ns_steps, ns_coefficients, ns_dtype
                    of the momentum and of the Newton-Schulz iteration
    adam_lr         the learning rate of AdamW
    betas, eps      of AdamW
    table_decay     weight decay of tables; biases and factors have none

    Defaults are those of amosc train --optimizer muon, without a warm-up.
    """

    target = "muon"
    compiled = {"factor": "factor", **COMPILED}

    def __init__(self, params: Any, example_inputs: Any = None, *,
                 module: Optional[torch.nn.Module] = None, scales: Any = None, lr: float = 0.02,
                 weight_decay: float = 0.0, factor: str = "factor", momentum: float = 0.95,
                 nesterov: bool = True, ns_steps: int = 5,
                 ns_coefficients: Sequence[float] = COEFFICIENTS,
                 ns_dtype: torch.dtype = torch.bfloat16, adam_lr: float = 3e-4,
                 betas: Tuple[float, float] = (0.9, 0.95), eps: float = 1e-10,
                 table_decay: float = 0.0, foreach: Optional[bool] = None,
                 fused: Optional[bool] = None, **options: Any):
        if factor not in ("factor", "rms_factor"):
            raise ValueError(f"factor: expected 'factor' or 'rms_factor', found '{factor}'")
        defaults = dict(lr=lr, weight_decay=weight_decay, factor=factor, momentum=momentum,
                        nesterov=nesterov, ns_steps=ns_steps, ns_coefficients=ns_coefficients,
                        ns_dtype=ns_dtype, betas=betas, eps=eps, foreach=foreach, fused=fused)
        adam = {"lr": adam_lr, "decays": {"decay": weight_decay, "table": table_decay}}
        super().__init__(params, example_inputs, module, scales, options, defaults, adam)

    def update_matrices(self, rows: Rows, w: List[torch.Tensor], g: List[torch.Tensor],
                        group: Dict[str, Any], t: int) -> None:
        lr = float(group["lr"])
        torch._foreach_mul_(w, 1 - lr * group["weight_decay"])
        for i, matrix, update in orthogonal(self._momenta(rows, g, group), rows, group):
            put(w[i], matrix, cut(w[i], matrix) - lr * matrix[group["factor"]] * update)


class Hyperball(_Matrices):
    """Hyperball (arXiv 2606.16899) for the hidden matrices of a module, AdamW for the other
    parameters, by its graph.

        optimizer = Hyperball(model, (x,), lr=0.02)

    Every matrix keeps its Frobenius norm, R: w moves by lr R along the direction of the update,
    then back to norm R.

    params, example_inputs, module, scales, foreach, fused, options
                    as of Amos; fused with ns_dtype=torch.float32 and the defaults of other settings
                    of the iteration
    lr              the length of a step of matrices, per R
    base            the optimizer whose updates give the direction: "muon" or "adam"
    radius          R: "eta", the norm at the expected scale, or "initial", that of the first
                    weights, as the authors
    momentum, nesterov, ns_steps, ns_coefficients, ns_dtype
                    as of Muon, of base "muon"
    betas, eps      of AdamW and of base "adam"
    adam_lr, weight_decay, table_decay
                    of AdamW; the decays are of kernels and tables that it trains

    Defaults are those of amosc train --optimizer hyperball, without a warm-up.
    """

    target = "hyperball"
    compiled = {"base": "muon", "radius": "eta", **COMPILED}

    def __init__(self, params: Any, example_inputs: Any = None, *,
                 module: Optional[torch.nn.Module] = None, scales: Any = None, lr: float = 0.02,
                 base: str = "muon", radius: str = "eta", momentum: float = 0.95,
                 nesterov: bool = True, ns_steps: int = 5,
                 ns_coefficients: Sequence[float] = COEFFICIENTS,
                 ns_dtype: torch.dtype = torch.bfloat16, adam_lr: float = 6e-4,
                 betas: Tuple[float, float] = (0.9, 0.95), eps: float = 1e-8,
                 weight_decay: float = 0.0, table_decay: float = 0.0,
                 foreach: Optional[bool] = None, fused: Optional[bool] = None, **options: Any):
        known = {"base": ("muon", "adam"), "radius": ("eta", "initial")}
        for name, value in ("base", base), ("radius", radius):
            if value not in known[name]:
                one, other = known[name]
                raise ValueError(f"{name}: expected '{one}' or '{other}', found '{value}'")
        defaults = dict(lr=lr, base=base, radius=radius, momentum=momentum, nesterov=nesterov,
                        ns_steps=ns_steps, ns_coefficients=ns_coefficients, ns_dtype=ns_dtype,
                        betas=betas, eps=eps, weight_decay=0.0, foreach=foreach, fused=fused)
        adam = {"lr": adam_lr, "decays": {"decay": weight_decay, "table": table_decay}}
        super().__init__(params, example_inputs, module, scales, options, defaults, adam)

    def _first_norm(self, parameter: torch.Tensor, w: torch.Tensor,
                    matrix: Mapping[str, Any]) -> torch.Tensor:
        """Returns the norms that matrices had before the first step, [count, 1, 1]."""
        state, key = self.state[parameter], f"radius.{matrix['ranges'][0][0]}"
        if key not in state:
            state[key] = torch.linalg.matrix_norm(cut(w, matrix), keepdim=True)
            if not state[key].all():
                raise ValueError(
                    f"a matrix of a parameter of shape {list(w.shape)} is zero, so its first "
                    "norm is no radius\n  help: radius='eta'"
                )
        return state[key]

    def update_matrices(self, rows: Rows, w: List[torch.Tensor], g: List[torch.Tensor],
                        group: Dict[str, Any], t: int) -> None:
        if group["base"] == "muon":
            updates = orthogonal(self._momenta(rows, g, group), rows, group)
        else:
            updates = pieces(self._adam_updates(rows, g, group, t), rows, group)
        for i, matrix, update in updates:
            radius = (
                matrix["radius"]
                if group["radius"] == "eta"
                else self._first_norm(rows[i][1], w[i], matrix)
            )
            moved = _unit(cut(w[i], matrix)) - float(group["lr"]) * _unit(update)
            put(w[i], matrix, radius * _unit(moved))
