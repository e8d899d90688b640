"""_scales.py: what optimizers ask of a graph: scales and policies by parameter, and settings of
Amos. Private."""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Dict, Sequence

import numpy

import amosc

from ._library import Double, InputError, lib, need, number

GIVEN = ("xi", "beta", "momentum", "warmup", "clip", "extra_l2", "average")
DERIVED = ("coef", "pace", "strength", "most", "reach", "least", "mix")


PARTS = ("beta", "momentum", "b1", "b2", "betas")  # numbers below 1
STEPS = ("warmup",)  # integers


def check(**numbers: Any) -> None:
    """Fails unless hyperparameters, which may be None, are numbers that the command takes."""
    for name, value in numbers.items():
        below = 1 if name in PARTS else math.inf
        if value is not None:
            number(name, value)
        if value is not None and not 0 <= value < below:
            kind = "below 1 and of" if below == 1 else "of"
            raise ValueError(f"{name}: expected a number {kind} at least 0, found {value}")
        if value is not None and name in STEPS and value != int(value):
            raise ValueError(f"{name}: expected a number of steps, found {value}")
        if value is not None and name == "average" and 0 < value < 1:
            raise ValueError(f"{name}: expected 0 or a number of at least 1, found {value}")


def check_eta(name: str, eta: Any) -> None:
    """Fails unless a scale, a number or an array of any kind, is positive. None: there is none."""
    if eta is None:
        return
    values = numpy.asarray(getattr(eta, "tolist", lambda: eta)(), "f8")
    if not (numpy.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name}: expected a positive eta, found {eta}")


class _Settings(ctypes.Structure):  # struct amosc_amos
    _fields_ = [(name, Double) for name in (*GIVEN, *DERIVED)]


def settings(
    batches: float | None, labels: float | None, **given: float | None
) -> Dict[str, float]:
    """Returns all settings of Amos: those of GIVEN that are given, the rest as `amosc train`
    chooses them, but for `average`, which is 0.

    batches  independent batches in the data, such as len(loader); None: unknown, which selects
             Algorithm 1
    labels   labels in a batch, over which the loss is a mean; None: unknown, so that gradients are
             not clipped
    """
    check(batches=batches, labels=labels, **given)
    made = _Settings(*(math.nan if given.get(name) is None else given[name] for name in GIVEN))
    need(lib.amosc_amos_defaults(ctypes.byref(made), batches or 0, labels or 0))
    return {name: getattr(made, name) for name, _ in made._fields_}


def read(source: Any, **options: Any) -> Mapping[str, Any]:
    """Returns a report: a mapping as `amosc eta --json` writes it, whose rows have at least a name
    and an eta.

    source   such a mapping, the path of one in a file (.json) or of a model, or a mapping from
             names to scales: a number each, or a mapping with "eta" and "slots"
    options  of amosc.eta(), if the source is a model
    """
    if not isinstance(source, Mapping):
        if os.fspath(source).endswith(".json"):
            return json.loads(Path(source).read_text())
        return amosc.eta(source, **options)
    if "params" in source:
        return source
    rows = []
    for name, scale in source.items():
        row = scale if isinstance(scale, Mapping) else {"eta": scale}
        rows.append({"name": name, "shape": None, "slots": None, **row})
    return {"params": rows}


def _command() -> str:
    """Returns the command amosc, of the wheel or on the path."""
    own = Path(__file__).resolve().parent / "bin" / "amosc"
    found = str(own) if own.exists() else shutil.which("amosc")
    if not found:
        raise ImportError(
            "amosc: the command amosc is not on the path\n  help: install the wheel of amosc"
        )
    return found


def policy(
    report: Mapping[str, Any], target: str, base: Mapping[str, Any] | None = None
) -> Dict[str, Mapping[str, Any]]:
    """Returns what `amosc eta REPORT --for TARGET [--base BASE]` says of parameters, by name."""
    given = {"report.json": report} if base is None else {"report.json": report, "base.json": base}
    if any("role" not in row for one in given.values() for row in one["params"]):
        raise ValueError(
            "scales: numbers have no roles; expected a report of amosc eta --json, or a model"
        )
    with tempfile.TemporaryDirectory(prefix="amosc-") as folder:
        for name, one in given.items():
            Path(folder, name).write_text(json.dumps(one))
        words = [_command(), "eta", f"{folder}/report.json", "--for", target, "--json"]
        if base is not None:
            words += ["--base", f"{folder}/base.json"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise InputError(done.stderr.strip())
    return {row["name"]: row for row in json.loads(done.stdout)["params"]}


def default_slots(shape: Sequence[int]) -> Sequence[int]:
    """Returns the slots of a scale given as a number: one per element of the first axis, or one in
    all for a vector."""
    return [size if axis == 0 and len(shape) > 1 else 1 for axis, size in enumerate(shape)]
