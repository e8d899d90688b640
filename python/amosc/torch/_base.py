"""_base.py: what the optimizers share."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from .. import _scales as by_name
from . import _fused

# Settings that are numbers.
NUMBERS = ("lr", "beta", "momentum", "clip", "extra_l2", "warmup", "average", "weight_decay", "eps",
           "ns_steps")
Rows = List[Tuple[int, torch.Tensor]]  # parameters, with their indices in a group


def state_type(parameter: torch.Tensor) -> torch.dtype:
    """Returns the type of state and arithmetic: at least float32, in which running means of
    bfloat16 do not stall."""
    return torch.promote_types(parameter.dtype, torch.float32)


class Optimizer(torch.optim.Optimizer):
    """An optimizer that updates lists of parameters in place: update(parameters, gradients, step,
    group)."""

    own: Tuple[str, ...] = ()  # attributes that copies of the optimizer have, too

    def __init__(self, groups: List[Any], defaults: Dict[str, Any]):
        if defaults["fused"] and defaults["foreach"]:
            raise ValueError("expected foreach or fused, found both")
        self._programs: Dict[torch.Tensor, _fused.Program] = {}  # by parameter
        super().__init__(groups, defaults)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self._programs = {}

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in self.own}}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        super().add_param_group(param_group)
        by_name.check(**{name: param_group[name] for name in NUMBERS if name in param_group})
        for beta in param_group.get("betas", ()):
            by_name.check(betas=beta)
        if param_group["fused"]:
            self.rule(param_group)
            for i, parameter in enumerate(param_group["params"]):
                if parameter.requires_grad:
                    _fused.check(parameter, self.name(param_group, i))

    def name(self, group: Dict[str, Any], i: int) -> str:
        """Returns the parameter of index i in a group, for messages."""
        return f"'{group['param_names'][i]}'" if "param_names" in group else str(i)

    def gradients(self, group: Dict[str, Any]) -> Iterator[Tuple[int, torch.Tensor]]:
        """Yields the indices and parameters of a group that have a gradient."""
        for i, parameter in enumerate(group["params"]):
            if parameter.grad is None or parameter.numel() == 0:
                continue
            name = self.name(group, i)
            if parameter.is_complex():
                raise RuntimeError(
                    f"{type(self).__name__}: parameter {name} is complex; expected real numbers"
                )
            if parameter.grad.layout is not torch.strided:
                raise RuntimeError(
                    f"{type(self).__name__}: the gradient of parameter {name} is sparse; "
                    "expected a dense one\n  help: create the embedding with sparse=False"
                )
            yield i, parameter

    def rule(self, group: Dict[str, Any]) -> _fused.Rule:
        """Returns what programs of a group are compiled by. Fails if there is no program for it."""
        raise NotImplementedError

    def settings(self, group: Dict[str, Any], indices: List[int]) -> Dict[str, Any]:
        """Returns what is compiled into a program of the parameters with these indices."""
        raise NotImplementedError

    def report_row(self, group: Dict[str, Any], i: int,
                   parameter: torch.Tensor) -> Mapping[str, Any]:
        """Returns the row of a parameter in a report, from which a program is compiled."""
        raise NotImplementedError

    def update(self, rows: Rows, w: List[torch.Tensor],
               g: List[torch.Tensor], t: int, group: Dict[str, Any]) -> None:
        """Updates in place the parameters w, whose indices in the group and whose originals are
        `rows`."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Makes one step. Parameters without a gradient stay as they are, with their state."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        due = [(group, list(self.gradients(group))) for group in self.param_groups]
        for group, rows in due:
            if group["fused"]:
                self._check_programs(group, rows)
        for group, rows in due:
            alike: Dict[Any, Rows] = {}
            for i, parameter in rows:
                state = self.state[parameter]
                if "step" not in state:
                    state["step"] = torch.zeros(())
                state["step"] += 1
                key = parameter.dtype, parameter.device, int(state["step"])
                alike.setdefault(key, []).append((i, parameter))
            for (_, device, t), some in alike.items():
                foreach = group["foreach"] if group["foreach"] is not None else device.type != "cpu"
                if group["fused"]:
                    self._update_fused(some, t, group)
                    continue
                for part in [some] if foreach else [[row] for row in some]:
                    self._update(part, t, group)
        return loss

    def _check_programs(self, group: Dict[str, Any], rows: Rows) -> None:
        given = {parameter for _, parameter in rows}
        known = [parameter for _, parameter in rows if parameter in self._programs]
        for program in dict.fromkeys(self._programs[parameter] for parameter in known):
            program.check(given, self.settings(group, program.indices))

    def _update_fused(self, rows: Rows, t: int, group: Dict[str, Any]) -> None:
        """Runs programs. Parameters that get their first gradients in the same step have one."""
        new = [row for row in rows if row[1] not in self._programs]
        if new:
            reports = [self.report_row(group, *row) for row in new]
            settings = self.settings(group, [i for i, _ in new])
            names = [self.name(group, i) for i, _ in new]
            program = _fused.Program(self.rule(group), new, names, reports, settings)
            self._programs.update({parameter: program for _, parameter in new})
        for program in dict.fromkeys(self._programs[parameter] for _, parameter in rows):
            params = [group["params"][i] for i in program.indices]
            program.update([self.state[parameter] for parameter in params], t, float(group["lr"]))

    def _update(self, rows: Rows, t: int, group: Dict[str, Any]) -> None:
        dtype = state_type(rows[0][1])
        w = [
            parameter.to(dtype) for _, parameter in rows
        ]  # the parameter itself, unless of less than 32 bits
        g = [parameter.grad.to(dtype) for _, parameter in rows]
        self.update(rows, w, g, t, group)
        if w[0] is not rows[0][1]:
            torch._foreach_copy_([parameter for _, parameter in rows], w)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        fused = [group["fused"] for group in self.param_groups]
        super().load_state_dict(state_dict)  # casts state to the type of the parameter
        self._programs = {}
        for group, own in zip(self.param_groups, fused):
            group["fused"] = own  # how it computes is no setting
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters):
            for key, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor) and key != "step":
                    self.state[parameter][key] = value.to(parameter.device, copy=True)
