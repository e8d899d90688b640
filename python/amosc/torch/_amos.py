"""_amos.py: the optimizer Amos (arXiv 2210.11693) for PyTorch."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch

from .. import _scales as by_name
from . import _guess
from ._base import Optimizer, Rows, state_type
from ._fused import Rule
from ._scales import ScaleWarning, resolve

GIVEN = ("beta", "momentum", "clip", "extra_l2", "warmup")  # settings beside lr
LEAST_V = 2.0**-125  # lower limit of v, as in the authors' code


def _mean_square(x: torch.Tensor, slots: torch.Size) -> torch.Tensor:
    """Returns the mean of the squares over the axes that the slots reduce, in the shape of the
    slots."""
    over = [axis for axis, size in enumerate(slots) if size != x.shape[axis]]
    if not over:
        return x.square()
    count = math.prod(x.shape[axis] for axis in over)
    return torch.linalg.vector_norm(x, dim=over, keepdim=True).square_().div_(count)


def _reached(w: List[torch.Tensor], eta: List[torch.Tensor],
             group: Dict[str, Any]) -> List[torch.Tensor]:
    """Returns the scales of the step: `reach` times the RMS of w, from `least` times eta up to
    eta."""
    size = torch._foreach_norm(w)
    torch._foreach_mul_(size, [group["reach"] / math.sqrt(x.numel()) for x in w])
    least = torch._foreach_mul(eta, group["least"])
    return [torch.minimum(torch.maximum(x, low), high) for x, low, high in zip(size, least, eta)]


def amos(w: List[torch.Tensor], g: List[torch.Tensor], eta: List[torch.Tensor],
         v: List[torch.Tensor], b: List[torch.Tensor], m: Optional[List[torch.Tensor]],
         ahead: Optional[List[torch.Tensor]], t: int, group: Dict[str, Any]) -> None:
    """Makes step t = 1, 2, ... of parameters w, in place, with their state v, b, m (None: no
    momentum), ahead (None: no running mean; else w is the point where gradients are taken).

    eta, v and b broadcast against the parameter; `group` has the settings. The names are those of
    Algorithm 1.
    """
    xi = float(group["lr"]) * (min(t / group["warmup"], 1) if group["warmup"] else 1)
    small = group["coef"] * math.sqrt(xi)
    if group["clip"]:
        g = list(torch._foreach_clamp_max(g, group["clip"]))
        torch._foreach_clamp_min_(g, -group["clip"])

    s = [_mean_square(x, slot.shape) for x, slot in zip(g, v)]
    torch._foreach_mul_(v, group["beta"])
    torch._foreach_add_(v, s, alpha=1 - group["beta"])
    r = torch._foreach_clamp_min(v, LEAST_V)
    torch._foreach_reciprocal_(r)
    torch._foreach_mul_(r, 1 - group["beta"] ** t)
    torch._foreach_mul_(s, r)  # the mean square of the normalized gradient

    gamma = torch._foreach_mul(b, small)
    torch._foreach_add_(gamma, 1.0)
    torch._foreach_sqrt_(gamma)
    gamma = torch._foreach_div(s, gamma)
    torch._foreach_mul_(gamma, xi * xi)

    torch._foreach_sqrt_(r)
    if group["most"]:
        surge = [x.mean() / group["most"] for x in s]
        torch._foreach_clamp_min_(surge, 1.0)
        torch._foreach_sqrt_(surge)
        torch._foreach_div_(r, surge)
    e = _reached(w, eta, group) if group["reach"] else eta

    d = [x * y for x, y in zip(b, torch._foreach_sqrt(eta))]  # 1 / d of Algorithm 1
    torch._foreach_mul_(d, small)
    torch._foreach_add_(d, 1.0)
    decay = torch._foreach_mul(gamma, 0.5 * group["strength"])
    torch._foreach_add_(decay, group["extra_l2"])
    delta = [x * (y / z) for x, y, z in zip(w, decay, d)]
    for one, x, y, z, grad in zip(delta, e, r, d, g):
        one.addcmul_(x * y * xi / z, grad)

    torch._foreach_mul_(gamma, group["pace"])
    torch._foreach_addcmul_(b, gamma, torch._foreach_add(b, 1.0))
    if m is not None:
        torch._foreach_lerp_(m, delta, 1 - group["momentum"])
        delta = m
    if ahead is None:
        torch._foreach_sub_(w, delta)
        return
    part, gap = group["average"] / (group["average"] + t - 1), 1 - group["mix"]
    torch._foreach_add_(w, ahead, alpha=-gap)  # the mean before the step
    torch._foreach_sub_(ahead, delta)
    torch._foreach_add_(w, ahead, alpha=part + gap * (1 - part))
    torch._foreach_mul_(ahead, 1 - part)


class Amos(Optimizer):
    """Amos, with the expected scale of every parameter inferred from the module's graph.

        optimizer = Amos(model, (x,), batches=len(loader), labels=loader.batch_size)

    params          a torch.nn.Module; or parameters or groups as for any optimizer, by name
                    (model.named_parameters()) or with module=
    example_inputs  inputs of one call of the module: a tensor, a tuple or a dict. Its graph is
                    exported from them
    scales          instead of a graph: the path of an ONNX file or of a report by amosc eta --json,
                    such a report, or a dict by name of numbers or {"eta": ..., "slots": [...]}
    batches         N, the number of independent batches in the data; None: unknown, which selects
                    Algorithm 1
    labels          labels in a batch, over which the loss is a mean; None: gradients are not
                    clipped
    lr              the global learning rate, xi (default: 1/sqrt(N + 2000), or .01); if given,
                    other defaults are the paper's
    beta, momentum, clip, extra_l2, warmup
                    as the options of amosc train, with the same defaults (docs/optimizer.md)
    average         train toward a running mean of the parameters over about the last 1/average of
                    all steps; amosc train has 8. Call eval() before the parameters are evaluated
                    or saved, and train() before the next step
    foreach         update parameters together, which is faster on a GPU and takes more memory
                    (default: on a GPU)
    fused           update parameters on the CPU by a program that amosc compiles at the first step.
                    They are torch.float32 and become views of its memory; the same ones have
                    gradients in each step, and settings but lr stay
    options         of amosc.eta(): loss, convention, range, slots, ...

    Groups may have their own lr, beta, momentum, clip, extra_l2 and warmup, and eta and slots: a
    value for all of their parameters, or a list. State is v and b, one number per slot, and the
    running mean m of the updates, or with `average` the distance `ahead` from the mean to what the
    algorithm steps.
    """

    own = ("_scales",)

    def __init__(self, params: Any, example_inputs: Any = None, *,
                 module: Optional[torch.nn.Module] = None, scales: Any = None,
                 batches: Optional[float] = None, labels: Optional[float] = None,
                 lr: Optional[float] = None, beta: Optional[float] = None,
                 momentum: Optional[float] = None, clip: Optional[float] = None,
                 extra_l2: Optional[float] = None, warmup: Optional[float] = None,
                 average: float = 0, foreach: Optional[bool] = None, fused: Optional[bool] = None, **options: Any):
        by_name.check(lr=lr)
        defaults: Dict[str, Any] = by_name.settings(
            batches,
            labels,
            xi=lr,
            beta=beta,
            momentum=momentum,
            clip=clip,
            extra_l2=extra_l2,
            warmup=warmup,
            average=average,
        )
        defaults["lr"] = defaults.pop("xi")
        defaults["batches"] = batches if lr is None else None  # that the other settings follow from
        groups, self._scales = resolve(params, example_inputs, module, scales, options)
        self._tensors: Dict[torch.Tensor, Tuple[Any, torch.Tensor]] = (
            {}
        )  # {parameter: its eta, as given and as used}
        super().__init__(groups, dict(defaults, training=True, foreach=foreach, fused=fused))

    @property
    def report(self) -> Any:
        """The eta report that the scales come from."""
        return self._scales.report

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self._tensors = {}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        given = {key: param_group.pop(key, None) for key in ("eta", "slots")}
        super().add_param_group(param_group)
        params = param_group["params"]
        for key, value in given.items():
            if value is None:
                value = [(self._scales.row(parameter) or {}).get(key) for parameter in params]
            elif not isinstance(value, list):
                value = [value] * len(params)
            if len(value) != len(params):
                raise ValueError(
                    f"{key}: expected one value or a list of {len(params)}, found {len(value)}"
                )
            param_group[key] = value
        for i, eta in enumerate(param_group["eta"]):
            by_name.check_eta(f"parameter {self.name(param_group, i)}", eta)

    def _scale(self, group: Dict[str, Any], i: int, parameter: torch.Tensor) -> torch.Tensor:
        """Returns eta of the parameter of index i in a group, with the rank of the parameter."""
        if group["eta"][i] is None:
            name = self._scales.names.get(parameter, f"parameter {i}")
            row = _guess.row(name, parameter.shape)
            warnings.warn(
                f"'{name}' has a gradient, but the graph that scales were inferred from does "
                f"not use it; its scale is guessed: {row['eta']:.4g}\n"
                "  For another, give its group eta=, or "
                "example_inputs that use it",
                ScaleWarning,
                stacklevel=4,
            )
            group["eta"][i] = row["eta"]
            if group["slots"][i] is None:
                group["slots"][i] = row["slots"]
        eta = group["eta"][i]
        if parameter not in self._tensors or self._tensors[parameter][0] is not eta:
            tensor = torch.as_tensor(eta, dtype=state_type(parameter), device=parameter.device)
            self._tensors[parameter] = eta, tensor.reshape(
                (1,) * (parameter.dim() - tensor.dim()) + tensor.shape
            )
        return self._tensors[parameter][1]

    def _state(self, group: Dict[str, Any], i: int,
               parameter: torch.Tensor) -> Dict[str, torch.Tensor]:
        state = self.state[parameter]
        dtype = state_type(parameter)
        if "v" not in state:
            slots = group["slots"][i]
            if slots is None:
                slots = by_name.default_slots(parameter.shape)
            full = [1] * (parameter.dim() - len(slots)) + list(slots)
            if any(size not in (1, most) for size, most in zip(full, parameter.shape)):
                raise ValueError(
                    f"slots {list(slots)} do not fit a parameter of shape {list(parameter.shape)}"
                )
            state["v"], state["b"] = (
                torch.zeros(full, dtype=dtype, device=parameter.device) for _ in "vb"
            )
        for key, used in ("m", group["momentum"]), ("ahead", group["average"]):
            if used and key not in state:
                state[key] = torch.zeros_like(parameter, dtype=dtype)
        return state

    @torch.no_grad()
    def eval(self) -> None:
        """Makes the parameters the running mean, to evaluate or to save them. Without `average`
        they stay as they are."""
        for group in self.param_groups:
            for parameter in group["params"] if group["training"] else []:
                state = self.state[parameter] if parameter in self.state else {}
                if "ahead" in state:
                    state["point"] = parameter.detach().clone()
                    mean = parameter - (1 - group["mix"]) * state["ahead"]
                    parameter.copy_(mean)
            group["training"] = False

    @torch.no_grad()
    def train(self) -> None:
        """Undoes eval() to the bit, also if the parameters were changed meanwhile."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.state and "point" in self.state[parameter]:
                    parameter.copy_(self.state[parameter].pop("point"))
            group["training"] = True

    def settings(self, group: Dict[str, Any], indices: List[int]) -> Dict[str, Any]:
        own = {name: group[name] for name in (*GIVEN, *by_name.DERIVED, "batches")}
        return {**own, "eta": [group["eta"][i] for i in indices]}

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        if any(group["average"] and not group["training"] for group in self.param_groups):
            raise RuntimeError("Amos: step() after eval()\n  help: call train() before it")
        return super().step(closure)

    def rule(self, group: Dict[str, Any]) -> Rule:
        if group["average"]:
            raise ValueError("fused: it has no running mean of the parameters\n  help: fused=False")
        known = by_name.settings(group["batches"], None)
        for name in by_name.DERIVED:
            if group[name] != known[name]:
                raise ValueError(
                    f"fused: {name}: expected {known[name]}, which follows from batches, found "
                    f"{group[name]}\n  help: fused=False"
                )
        options = {"optimizer": "amos", **{name: group[name] for name in GIVEN}}
        if group["batches"]:
            options["batches"] = group["batches"]
        else:
            options["xi"] = 1
        rate = known["xi"] if group["batches"] else 1.0
        return Rule(options, rate, {key: key for key in "vbm"}, {"amos.beta_t": group["beta"]})

    def report_row(self, group: Dict[str, Any], i: int,
                   parameter: torch.Tensor) -> Mapping[str, Any]:
        self._scale(group, i, parameter)  # which may be guessed
        eta = torch.as_tensor(group["eta"][i], dtype=torch.float64)
        return {
            "role": "",
            "shape": list(parameter.shape),
            "eta": eta.reshape((1,) * (parameter.dim() - eta.dim()) + eta.shape).tolist(),
            "formula": "",
            "slots": list(self._state(group, i, parameter)["v"].shape),
            "why": [],
        }

    def update(self, rows: Rows, w: List[torch.Tensor],
               g: List[torch.Tensor], t: int, group: Dict[str, Any]) -> None:
        eta = [self._scale(group, *row) for row in rows]
        states = [self._state(group, *row) for row in rows]
        m = [state["m"] for state in states] if group["momentum"] else None
        ahead = [state["ahead"] for state in states] if group["average"] else None
        amos(
            w,
            g,
            eta,
            [state["v"] for state in states],
            [state["b"] for state in states],
            m,
            ahead,
            t,
            group,
        )
