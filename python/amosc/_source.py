"""_source.py: models as files: a path, or an object that is written to a file. Private."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any, Mapping

Model = Any  # str or os.PathLike, onnx.ModelProto, torch.nn.Module


def is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")  # a module exists only if torch is imported
    return torch is not None and isinstance(model, torch.nn.Module)


def export_module(module: Any, args: Any, path: Path, options: Mapping[str, Any]) -> None:
    """Writes a copy of a module as docs/eta.md recommends: in training mode, not optimized."""
    import torch

    from .torch import _export

    if args is None:
        raise TypeError(
            "args: expected example inputs of the module, as torch.onnx.export() takes them"
        )
    args = torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), args)
    args = args if isinstance(args, tuple) else (args,)
    options = {"dynamo": True, "optimize": False, "verbose": False, **options}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
        own = _export.copied(module).train()
        if options["dynamo"] and not {"dynamic_axes", "kwargs"} & set(options):
            own = _export.traced(own, args, dynamic_shapes=options.pop("dynamic_shapes", None))
        torch.onnx.export(own, args, str(path), **options)


class Folder:
    """A temporary directory, which exists as long as this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="amosc-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Source:
    """The file of a model; that of an object exists as long as this."""

    def __init__(self, model: Model, args: Any = None, export: Mapping[str, Any] | None = None):
        if not is_module(model) and (args is not None or export is not None):
            raise TypeError(
                f"args, export: these are for a torch.nn.Module, found {type(model).__name__}"
            )
        self.temporary = not isinstance(model, (str, os.PathLike))
        if not self.temporary:
            self.path = Path(model)
            return
        if not hasattr(model, "SerializeToString") and not is_module(model):
            raise TypeError(
                "expected the path of an ONNX file, an onnx.ModelProto or a torch.nn.Module, found "
                f"{type(model).__name__}"
            )
        self.folder = Folder()
        self.path = self.folder.path / f"{type(model).__name__}.onnx"
        if is_module(model):
            export_module(model, args, self.path, export or {})
        else:
            self.path.write_bytes(model.SerializeToString())
