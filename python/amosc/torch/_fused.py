"""_fused.py: the update of parameters on the CPU, by a program that amosc compiles for them.

A program is compiled from rows of a report. The parameters and their state become views of its
memory; gradients are copied into it. Nothing else keeps state: a program that is made anew, as
after load_state_dict(), continues to the same bits.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Set, Tuple

import torch

from .. import _arrays as arrays
from .._library import TRAIN, Session, lib, need
from .._model import Compiled

State = Dict[str, torch.Tensor]


class Rule(NamedTuple):
    """What a program is compiled by."""

    options: Dict[str, Any]  # of amosc build
    rate: float  # the step size that is compiled in, to which others are relative
    state: Dict[str, str]  # {key of a parameter's state: the same in the program}
    powers: Dict[str, float]  # {state of the program: base of its power, of the steps made}


def check(parameter: torch.Tensor, name: str) -> None:
    """Fails if a parameter cannot become a view of a program's memory."""
    found = None
    if type(parameter.data) is not torch.Tensor or parameter.layout is not torch.strided:
        found = type(parameter.data).__name__
    elif parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        found = f"{parameter.dtype} on {parameter.device}"
    elif not parameter.is_contiguous():
        found = f"strides {list(parameter.stride())}"
    elif parameter.is_shared():
        found = "memory that processes share"
    elif parameter.untyped_storage().nbytes() != parameter.nbytes:
        found = "a part of a larger tensor"
    if found:
        raise RuntimeError(
            f"fused: parameter {name}: expected contiguous torch.float32 on cpu, in memory of its "
            f"own; found {found}\n  help: fused=False"
        )


def _power(base: float, count: int) -> float:
    """Returns base ** count, in the roundings of a program that makes one product a step."""
    power = 1.0
    for _ in range(count):
        power *= base
        if power == 0:
            break
    return power


class Program:
    """The update of parameters of a group that always have gradients together.

    rows      their indices in the group and themselves
    reports   their rows of a report
    settings  of the group, as compiled in
    """

    def __init__(
        self,
        rule: Rule,
        rows: List[Tuple[int, torch.Tensor]],
        names: List[str],
        reports: List[Mapping[str, Any]],
        settings: Dict[str, Any],
    ):
        self.indices, self.settings = [i for i, _ in rows], settings
        self._rule, self._names, self._params = rule, names, [parameter for _, parameter in rows]
        for parameter, name in zip(self._params, names):
            check(parameter, name)
        numbers = [str(k) for k in range(len(rows))]
        report = {"params": [{**row, "name": k} for k, row in zip(numbers, reports)]}
        options = {**rule.options, "update_only": True, "threads": torch.get_num_threads()}
        with tempfile.TemporaryDirectory(prefix="amosc-") as folder:
            path = Path(folder, "update.json")
            path.write_text(json.dumps(report))
            self._own = Compiled(Session(path, TRAIN, options), path.name)
        weights, gradients, state = (
            {name: torch.from_numpy(array) for name, array in self._own.of_kind(kind).items()}
            for kind in (arrays.PARAMETERS, arrays.GRADIENTS, arrays.STATE)
        )
        self._weights, self._gradients = ([of[k] for k in numbers] for of in (weights, gradients))
        self._state = [
            {key: state[f"{k}.{own}"] for key, own in rule.state.items() if f"{k}.{own}" in state}
            for k in numbers
        ]
        self._step = state["amos.step"]
        self._powers = [(state[name], base) for name, base in rule.powers.items()]

    def check(self, given: Set[torch.Tensor], settings: Dict[str, Any]) -> None:
        """Fails if it cannot update: one of its parameters has no gradient, or a setting of their
        group was changed."""
        for parameter, name in zip(self._params, self._names):
            if parameter not in given:
                raise RuntimeError(
                    f"fused: parameter {name} has no gradient; expected one, as in the step that "
                    "the program was compiled for\n  help: fused=False, which skips it"
                )
        for key, value in settings.items():
            before = self.settings[key]
            scales = key == "eta"  # objects, which may be arrays
            if any(a is not b for a, b in zip(value, before)) if scales else value != before:
                found = "" if scales else f": expected {before}, found {value}"
                raise RuntimeError(
                    f"fused: {key} was changed, but is compiled in{found}\n  help: "
                    "fused=False, or load_state_dict(state_dict()), which compiles again"
                )

    def _adopt(self, states: List[State]) -> None:
        """Takes over parameters and state that are not in the program's memory."""
        for parameter, name, own in zip(self._params, self._names, self._weights):
            if parameter.data_ptr() != own.data_ptr():
                check(parameter, name)
                own.copy_(parameter)
                parameter.data = own
        for state, views in zip(states, self._state):
            for key, view in views.items():
                if state.get(key) is not view:
                    view.copy_(state[key]) if key in state else view.zero_()
                    state[key] = view

    def update(self, states: List[State], t: int, lr: float) -> None:
        """Makes step t = 1, 2, ..."""
        self._adopt(states)
        torch._foreach_copy_(self._gradients, [parameter.grad for parameter in self._params])
        if self._step != t - 1:
            self._step.fill_(t - 1)
            for power, base in self._powers:
                power.fill_(_power(base, t - 1))
        need(lib.amos_set_rate(self._own.instance, lr / self._rule.rate))
        need(lib.amos_update(self._own.instance))
        for parameter in self._params:  # as an update in place by PyTorch does
            torch.autograd.graph.increment_version(parameter)
