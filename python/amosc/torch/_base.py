"""_base.py: what the optimizers share."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch


def state_type(parameter: torch.Tensor) -> torch.dtype:
    """Returns the type of state and arithmetic: at least float32, in which running means of
    bfloat16 do not stall."""
    return torch.promote_types(parameter.dtype, torch.float32)


class Optimizer(torch.optim.Optimizer):
    """An optimizer that updates lists of parameters in place: update(parameters, gradients, step,
    group)."""

    own: Tuple[str, ...] = ()  # attributes that copies of the optimizer have, too

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in self.own}}

    def gradients(self, group: Dict[str, Any]) -> Iterator[Tuple[int, torch.Tensor]]:
        """Yields the indices and parameters of a group that have a gradient."""
        for i, parameter in enumerate(group["params"]):
            if parameter.grad is None or parameter.numel() == 0:
                continue
            name = f"'{group['param_names'][i]}'" if "param_names" in group else str(i)
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

    def update(self, rows: List[Tuple[int, torch.Tensor]], w: List[torch.Tensor],
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
        for group in self.param_groups:
            alike: Dict[Any, List[Tuple[int, torch.Tensor]]] = {}
            for i, parameter in self.gradients(group):
                state = self.state[parameter]
                if "step" not in state:
                    state["step"] = torch.zeros(())
                state["step"] += 1
                key = parameter.dtype, parameter.device, int(state["step"])
                alike.setdefault(key, []).append((i, parameter))
            for (dtype, device, t), rows in alike.items():
                foreach = group["foreach"] if group["foreach"] is not None else device.type != "cpu"
                for some in [rows] if foreach else [[row] for row in rows]:
                    self._update(some, t, group)
        return loss

    def _update(self, rows: List[Tuple[int, torch.Tensor]], t: int, group: Dict[str, Any]) -> None:
        dtype = state_type(rows[0][1])
        w = [
            parameter.to(dtype) for _, parameter in rows
        ]  # the parameter itself, unless of less than 32 bits
        g = [parameter.grad.to(dtype) for _, parameter in rows]
        self.update(rows, w, g, t, group)
        if w[0] is not rows[0][1]:
            torch._foreach_copy_([parameter for _, parameter in rows], w)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        super().load_state_dict(state_dict)  # casts state to the type of the parameter
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters):
            for key, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor) and key != "step":
                    self.state[parameter][key] = value.to(parameter.device, copy=True)
