"""_guess.py: scales and roles by the classes, names and shapes of a module that does not export.

A graph says more: which kernels follow an activation, what a product with a table means, where a
kernel is cut.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

_READOUT = re.compile(
    r"(^|[._])(lm_head|heads?|classifier|score|readout|output|logits|decoder)" r"[._]?\d*\.?weight$"
)
_TABLE = re.compile(
    r"(^|[._])(wte|wpe|embed\w*|\w*embeddings?|\w*pos|relative_attention_bias)([._]|$)"
)
_INPUT = re.compile(
    r"(^|[._])(stem|patch\w*|conv_?1|conv_?in|features\.0(\.0)?|proj_in|conv_proj)([._]|$)"
)
_NORM = re.compile(r"norm|(^|\.)(ln|bn)(_?\w{1,2})?$", re.IGNORECASE)

_WHY = "guessed from the name and shape: the module does not export"
_UNKNOWN: Mapping[str, Any] = {
    "input_range": None,
    "demand": None,
    "range_from": None,
    "demand_by": [],
    "why": [_WHY],
    "sure": False,
    "question": _WHY,
    "tied": [],
    "node": None,
    "line": None,
    "view": None,
    "copies": [],
    "depth": 0,
    "use": None,
    "heads": None,
    "interleaved": False,
    "pieces": [],
    "products": [],
}


def _role(owner: Optional[torch.nn.Module], name: str, rank: int) -> str:
    kind = type(owner).__name__
    if isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        return "embedding"
    if rank < 2 and (_NORM.search(kind) or _NORM.search(name.rpartition(".")[0])):
        return "norm_bias" if name.endswith(("bias", "beta")) else "norm_scale"
    if name.rpartition(".")[2].startswith(("bias", "b_")) or name.endswith("_bias"):
        return "bias"
    if rank < 2:
        return "scale"
    known = isinstance(owner, (torch.nn.Linear, torch.nn.modules.conv._ConvNd))
    if known or not _TABLE.search(name):
        return "token" if re.search(r"token$", name) else "kernel"
    return "embedding"


def _fan_in(owner: Optional[torch.nn.Module], rank: int) -> List[int]:
    """Returns the axes of a kernel that are contracted."""
    if isinstance(owner, torch.nn.modules.conv._ConvTransposeNd):
        return [axis for axis in range(rank) if axis != 1]
    if type(owner).__name__ == "Conv1D" and rank == 2:  # Transformers: [inputs, outputs]
        return [0]
    return list(range(1, rank))


def row(name: str, shape: Sequence[int], owner: Optional[torch.nn.Module] = None,
        tied: bool = False) -> Dict[str, Any]:
    """Returns a row as of a report: scale, slots and structure."""
    role, rank = _role(owner, name, len(shape)), len(shape)
    fan_in = _fan_in(owner, rank) if role == "kernel" else []
    terms = math.prod(shape[axis] for axis in fan_in)
    readout = tied or role == "kernel" and bool(_READOUT.search(name))
    reduced = fan_in or range(1, rank) if role in ("kernel", "embedding") else range(rank)
    groups = getattr(owner, "groups", 1) if role == "kernel" else 1
    eta = {"kernel": 1 / math.sqrt(max(terms, 1)), "bias": 0.5, "norm_bias": 0.5}.get(role, 1.0)
    if tied and rank:
        eta = 1 / math.sqrt(shape[-1])
    return {
        **_UNKNOWN,
        "name": name,
        "initializer": name,
        "shape": list(shape),
        "role": role,
        "eta": eta,
        "formula": f"{eta:.9g}",
        "slots": [1 if axis in reduced else size for axis, size in enumerate(shape)],
        "input": role == "embedding" or role == "kernel" and bool(_INPUT.search(name)),
        "readout": readout,
        "fan_in": fan_in,
        "fan_out": [axis for axis in range(rank) if axis not in fan_in] if fan_in else [],
        "contracted": terms if fan_in else None,
        "groups": groups,
        "group_axes": [0] if groups > 1 else [],
    }


def report(module: torch.nn.Module) -> Mapping[str, Any]:
    """Returns a report with such rows for all parameters of a module."""
    owners = dict(module.named_modules())
    uses: Dict[torch.Tensor, set] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        uses.setdefault(parameter, set()).add(type(owners[name.rpartition(".")[0]]))
    rows = []
    for name, parameter in module.named_parameters():
        owner = owners[name.rpartition(".")[0]]
        tied = isinstance(owner, torch.nn.Embedding) and torch.nn.Linear in uses[parameter]
        rows.append(row(name, list(parameter.shape), owner, tied))
    kernels = [one for one in rows if one["role"] == "kernel"]
    if kernels and not any(one["readout"] for one in rows):
        kernels[-1]["readout"] = True  # modules list their parts in the order of use, mostly
    if kernels and not any(one["input"] for one in rows):
        kernels[0]["input"] = True
    unresolved = [{"name": one["name"], "question": one["question"]} for one in rows]
    return {
        "schema": 1,
        "model": type(module).__name__,
        "params": rows,
        "unresolved": unresolved,
        "notes": [_WHY],
    }
