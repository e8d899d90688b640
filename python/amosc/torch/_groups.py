"""_groups.py: parameter groups by role, for optimizers of PyTorch and others."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import torch

from .. import _scales as by_name
from ._scales import Scales, report, resolve

MULTIPLIERS = ("init", "output", "scores")  # of muP, beside those of rate and decay


def _mup(found: Scales, base: Optional[Mapping[str, Any]], lr: float, decays: Mapping[str, float],
         optimizer: str) -> Dict[torch.Tensor, Dict[str, Any]]:
    """Returns the keys of each parameter's group."""
    policy, decay = found.policy("mup", base), found.policy("adamw-groups")
    keys = {}
    for parameter, row in policy.items():
        own = decays.get(decay[parameter]["group"], 0.0)
        keys[parameter] = {
            "role": row["group"],
            "lr": lr * row[optimizer],
            "weight_decay": own * row[f"{optimizer}_decay"],
            **{name: row[name] for name in MULTIPLIERS},
        }
    return keys


def groups(module: Any, example_inputs: Any = None, *, scales: Any = None,
           target: str = "adamw-groups", weight_decay: float = 0.1, table_decay: float = 0.0,
           lr: Optional[float] = None, base: Any = None, optimizer: str = "adam",
           **options: Any) -> List[Dict[str, Any]]:
    """Returns parameter groups by role, for torch.optim.AdamW and others.

        optimizer = torch.optim.AdamW(amosc.torch.groups(model, (x,)), lr=1e-3)

    target     "adamw-groups": groups "decay" (kernels), "table" and "no_decay" with their
               weight_decay, the first two of which are arguments; "muon" or "hyperball": groups
               "muon" or "hyperball" (hidden matrices) and "adam"; "mup": groups with the rate and
               the decay that muP gives, by roles "hidden", "input", "output", "tied", "vector" and
               "fixed"
    lr         of "mup": the rate that was tuned at the base
    base       of "mup": the same network in that width, as a module, a report, or the path of a
               report or model (default: multipliers by the sizes themselves)
    optimizer  of "mup": "adam" or "sgd", whose multipliers these are

    The key "role" of a group names it. Groups of "mup" also have "init", the multiplier of first
    weights whose scale does not depend on the width, "output", that of what they make, and
    "scores", that of attention, or None: the module and its first weights must follow these.
    Other arguments are those of Amos.
    """
    mup = target == "mup"
    if (lr is not None) != mup or base is not None and not mup:
        raise ValueError("lr, base: of target 'mup', which needs the rate lr")
    if optimizer not in ("adam", "sgd"):
        raise ValueError(f"optimizer: expected 'adam' or 'sgd', found '{optimizer}'")
    by_name.check(lr=lr, weight_decay=weight_decay, table_decay=table_decay)
    found = resolve(module, example_inputs, None, scales, options)[1]
    decays = {"decay": weight_decay, "table": table_decay}
    if mup:
        if isinstance(base, torch.nn.Module):
            base = report(base, example_inputs, **options)
        elif base is not None:
            base = by_name.read(base)
        keys = _mup(found, base, float(lr or 0), decays, optimizer)
        rest = {"role": "unused", "lr": lr, "weight_decay": 0.0}
        rest.update(init=1.0, output=1.0, scores=None)
    else:
        policy, rest = found.policy(target), {"role": "adam"}
        keys = {parameter: {"role": row["group"]} for parameter, row in policy.items()}
        if target == "adamw-groups":
            rest = {"role": "no_decay", "weight_decay": 0.0}
            for one in keys.values():
                one["weight_decay"] = decays.get(one["role"], 0.0)
    made: Dict[Any, Dict[str, Any]] = {}
    for parameter in found.names:
        own = keys.get(parameter, rest)
        made.setdefault(tuple(own.values()), {"params": [], **own})["params"].append(parameter)
    return list(made.values())
