"""amosc compiles neural networks, exported as ONNX files, into trainers, and infers the scale that
each weight should have.

    import amosc

    print(amosc.eta("model.onnx"))                 # the expected scale of every parameter, and why
    model = amosc.compile("model.onnx", loss="cross_entropy(logits, labels)")
    for x, labels in batches:                      # arrays of NumPy, or tensors of torch
        loss = model.step({"x": x, "labels": labels})
    model.save("model.ckpt")
    model.export("trained.onnx")

eta()      reports scale, role and use of every parameter
compile()  compiles a model for this machine: a Model, with step(), gradient(), update(), eval(),
forward(), train()
build()    compiles a model ahead of time, to an executable or a library

Options are those of the command amosc, as keyword arguments with underscores: extra_l2=0.1 is
--extra-l2 0.1. A flag is True, an option that may be repeated takes a list, and one of pairs a
mapping: bind={"batch": 8}. None is no option. A name that is a word of Python ends in an
underscore.

Errors are exceptions with the text of the command: InputError, UsageError, MachineError and Bug,
each an Error. Notes, the lines that the command writes to standard error, go to the logger "amosc"
as warnings.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from . import _source
from ._arrays import Arrays
from ._library import (
    REPORT,
    TRAIN,
    Bug,
    Error,
    InputError,
    MachineError,
    Progress,
    Session,
    UsageError,
    lib,
    need,
    text_bytes,
)
from ._model import Data, Model
from ._report import Report

__all__ = [
    "eta",
    "compile",
    "build",
    "Model",
    "Report",
    "Arrays",
    "Progress",
    "Error",
    "InputError",
    "UsageError",
    "MachineError",
    "Bug",
]

__version__: str = lib.amosc_version().decode()
for _type in (Model, Report, Arrays, Progress):
    _type.__module__ = "amosc"


def eta(
    model: _source.Model,
    *,
    args: Any = None,
    export: Mapping[str, Any] | None = None,
    data: Any = None,
    **options: Any,
) -> Report:
    """Returns the eta report of a model: every parameter with its role, expected scale and reasons.

    model    path of an ONNX file or of a report, an onnx.ModelProto, or a torch.nn.Module
    args     example inputs of a module, as torch.onnx.export() takes them
    export   further arguments of torch.onnx.export(), such as {"output_names": ["logits"]}
    data     sources as the command takes them, or a mapping from inputs to sources or arrays: the
             range of a float input is then measured
    options  of the command `amosc eta`: loss, freeze, train, eta, range, bind, convention, ...

    Dimensions that neither bind nor data determines get placeholder sizes; scales do not depend on
    them.
    """
    source, own = _source.Source(model, args, export), Data(data)
    with Session(source.path, REPORT, {"data": own.option, **options}) as session:
        report = Report(json.loads(session.text(lib.amosc_eta)))
    if source.temporary:
        report["model"] = source.path.name
    return report


def compile(
    model: _source.Model,
    *,
    loss: str | None = None,
    args: Any = None,
    export: Mapping[str, Any] | None = None,
    purpose: str = "train",
    **options: Any,
) -> Model:
    """Compiles a model for this machine, in memory, with its loss, gradients and optimizer.

    model    path of an ONNX file, an onnx.ModelProto, or a torch.nn.Module; with update_only, also
             of a report
    loss     a formula over outputs, inputs and new inputs, such as "cross_entropy(logits, labels)";
             default: that of the model
    args     example inputs of a module, as torch.onnx.export() takes them, of the shapes to compile
             for
    export   further arguments of torch.onnx.export(), such as {"output_names": ["logits"]}
    purpose  "train"; "eval" for eval() alone, or "run" for forward() alone, which need neither
             gradients nor optimizer
    options  of the command `amosc train`: optimizer, batch, bind, data, freeze, precision, threads,
             seed, memory, ...

    It is compiled at once if bind, batch or data determine all dimensions, else at the first batch,
    for its shapes. With data (sources as the command takes them, or a mapping from inputs to
    sources or arrays), Amos derives its rate from their number; else from the option batches.

    With update_only=True it has `parameters`, `gradients`, `state` and update() alone: the program
    computes the gradients.
    """
    return Model(_source.Source(model, args, export), purpose, {"loss": loss, **options})


def build(
    model: _source.Model,
    path: str | os.PathLike[str],
    *,
    loss: str | None = None,
    args: Any = None,
    export: Mapping[str, Any] | None = None,
    data: Any = None,
    **options: Any,
) -> None:
    """Compiles a model ahead of time, as the command `amosc build` does, with the weights that its
    file has.

    path     what is written: NAME.o, NAME.a, NAME.so or NAME.ptx, else an executable. It needs no
             compiler
    options  of `amosc build`: bindings, minimal, update_only, target, name, ...; the others are
             those of compile()
    """
    source, own = _source.Source(model, args, export), Data(data)
    with Session(source.path, TRAIN, {"loss": loss, "data": own.option, **options}) as session:
        need(lib.amosc_write(session.handle, text_bytes("path", path)))
