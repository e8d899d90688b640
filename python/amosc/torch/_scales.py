"""_scales.py: the report of a module, and its rows by parameter."""

from __future__ import annotations

import os
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from .. import _scales as by_name
from . import _export, _guess


class ScaleWarning(UserWarning):
    """Scales are guessed from names and shapes."""


_reports: Any = weakref.WeakKeyDictionary()  # {module: {what its report depends on: report}}


def _key(module: torch.nn.Module, example_inputs: Any, options: Mapping[str, Any]) -> str:
    leaves, form = torch.utils._pytree.tree_flatten(_export.arguments(example_inputs))
    inputs = [(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in leaves]
    parts = [(name, type(part).__name__) for name, part in module.named_modules()]
    params = [(name, p.shape) for name, p in module.named_parameters(remove_duplicate=False)]
    return repr((inputs, form, parts, params, sorted(options.items())))


def report(module: torch.nn.Module, example_inputs: Any, *, strict: bool = False,
           **options: Any) -> Mapping[str, Any]:
    """Returns the eta report of a module, as `amosc eta --json` prints it for the exported file.

    module          is left as it is; DistributedDataParallel and torch.compile are looked through
    example_inputs  inputs of one call: a tensor, a tuple of positional or a dict of keyword
                    arguments
    strict          raise ExportError if the module does not export; otherwise scales are guessed,
                    with a ScaleWarning
    options         of amosc.eta(): loss, convention, range, slots, ...

    A second call with the same module, options and shapes of inputs returns the same report.
    """
    module = _export.unwrapped(module)
    known = _reports.setdefault(module, {})
    key = _key(module, example_inputs, options)
    if key not in known:
        try:
            known[key] = _export.report(module, example_inputs, **options)
        except _export.ExportError as error:
            if strict:
                raise
            warnings.warn(
                f"{type(module).__name__} does not export: {error}\n"
                "  Its scales are guessed from names and shapes of parameters, and wrong for some. "
                "For exact ones, pass scales=: the path of an ONNX file, a report by amosc eta "
                "--json, or a dict of numbers",
                ScaleWarning,
                stacklevel=2,
            )
            return _guess.report(module)
    return known[key]


class Scales:
    """The rows of a report by parameter. All names of a tied parameter lead to its one row."""

    def __init__(self, made: Mapping[str, Any], named: Iterable[Tuple[str, torch.Tensor]],
                 complete: bool):
        self.report = made
        self.names: Dict[torch.Tensor, str] = {}
        self._rows: Dict[torch.Tensor, Mapping[str, Any]] = {}
        rows = {row["name"]: row for row in made["params"]}
        for name, parameter in named:
            self.names.setdefault(parameter, name)
            row = rows.pop(name, None)
            if row is None:
                continue
            if row["shape"] is not None and list(row["shape"]) != list(parameter.shape):
                raise ValueError(
                    f"parameter '{name}': expected shape {list(row['shape'])} as in the scales, "
                    f"found {list(parameter.shape)}"
                )
            self._rows.setdefault(parameter, row)
        if rows and complete:
            raise ValueError(
                f"the scales name parameters that the module lacks: {', '.join(list(rows)[:5])}\n"
                "  help: names are those of module.named_parameters()"
            )

    def row(self, parameter: torch.Tensor) -> Optional[Mapping[str, Any]]:
        """Returns the row of a parameter; None: the report has none, as the graph does not use
        it."""
        return self._rows.get(parameter)

    def policy(
        self, target: str, base: Optional[Mapping[str, Any]] = None
    ) -> Dict[torch.Tensor, Mapping[str, Any]]:
        """Returns what `amosc eta --for TARGET` says of each parameter; `base`: a report for
        --base."""
        rows = by_name.policy(self.report, target, base)
        return {parameter: rows[row["name"]] for parameter, row in self._rows.items()}


def _named(groups: List[Any]) -> List[Tuple[str, torch.Tensor]]:
    """Returns the named parameters among those that an optimizer is given."""
    params = [
        one for group in groups for one in (group["params"] if isinstance(group, dict) else [group])
    ]
    return [one for one in params if isinstance(one, tuple)]


def resolve(params: Any, example_inputs: Any, module: Optional[torch.nn.Module], scales: Any,
            options: Mapping[str, Any]) -> Tuple[List[Any], Scales]:
    """Returns the parameters or groups for torch.optim.Optimizer, and the scales that the arguments
    describe."""
    if isinstance(params, torch.nn.Module):
        module = params
        groups = list(_export.unwrapped(module).named_parameters())
    else:
        groups = [
            dict(group, params=list(group["params"])) if isinstance(group, dict) else group
            for group in params
        ]
    if scales is not None:
        if example_inputs is not None or options and not isinstance(scales, (str, os.PathLike)):
            raise ValueError(
                "scales: neither example_inputs nor options of amosc.eta() apply to given scales"
            )
        made = by_name.read(scales, **options)
    elif module is None or example_inputs is None:
        raise ValueError(
            "expected a module and example_inputs, from which its graph is exported, or scales"
        )
    else:
        made = report(module, example_inputs, **options)
    named = (
        _named(groups)
        if module is None
        else _export.unwrapped(module).named_parameters(remove_duplicate=False)
    )
    found = Scales(made, named, module is not None)
    if not found.names:
        raise ValueError(
            "scales are by name: expected module=, or named parameters such as "
            "module.named_parameters()"
        )
    return groups, found
