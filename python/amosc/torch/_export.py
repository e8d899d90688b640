"""_export.py: exports a module for its report, without touching the module or its weights.

The file has the graph and the names of the parameters. Their values are not needed: on disk they
are a hole in a sparse file, in memory pages that are never written.
"""

import contextlib
import copy
import io
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Mapping

import torch

import amosc


TABLE = 2**24  # elements of the largest frozen parameter whose values are read


class ExportError(RuntimeError):
    """A module that torch.export or the ONNX exporter cannot translate."""


def unwrapped(module):
    """Returns the module within wrappers of PyTorch that add a prefix to the names of its
    parameters."""
    while True:
        if isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            module = module.module
        elif hasattr(module, "_orig_mod"):  # of torch.compile
            module = module._orig_mod
        else:
            return module


def _tensors(value):
    """Yields the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _is_hole(parameter):
    """True if the values of a parameter are left out. Those of frozen tables, such as sines, decide
    whether it is a parameter at all."""
    return parameter.requires_grad or parameter.numel() > TABLE


def copied(module, weights=True):
    """Returns a copy on the CPU; without weights, its parameters are memory that is not written."""
    copies = {}
    for part in module.modules():
        for tensor in _tensors(
            [part._buffers, {k: v for k, v in vars(part).items() if not k.startswith("_")}]
        ):
            copies[id(tensor)] = tensor.detach().cpu().clone()
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin):
            raise ExportError(f"parameter '{name}' has no shape yet: run the module once")
        values = torch.empty(parameter.shape, dtype=parameter.dtype)
        if weights or not _is_hole(parameter):
            values.copy_(parameter.detach())
        copies[id(parameter)] = torch.nn.Parameter(values, parameter.requires_grad)
    return copy.deepcopy(module, copies)


def arguments(example_inputs):
    """Returns the positional and the keyword arguments that example inputs stand for: a tensor, a
    tuple or a dict."""
    if isinstance(example_inputs, Mapping):
        args, kwargs = (), dict(example_inputs)
    elif isinstance(example_inputs, (list, tuple)):
        args, kwargs = tuple(example_inputs), {}
    else:
        args, kwargs = (example_inputs,), {}
    # a tensor given twice would be exported as one input
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().cpu().clone(), (args, kwargs)
    )


def _without_weights(program, names, folder):
    """Moves parameters of an ONNX program to a sparse file."""
    import onnx_ir

    largest = 0
    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        if name in names and tensor.nbytes > 0:
            largest = max(largest, tensor.nbytes)
            value.const_value = onnx_ir.ExternalTensor(
                "weights",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=tensor.shape,
                name=name,
                base_dir=folder,
            )
    path = os.path.join(folder, "weights")
    with open(path, "wb") as file:
        file.truncate(largest)


@contextlib.contextmanager
def _quiet():
    """Drops what the exporter warns of and prints."""
    log, sink = logging.getLogger("torch.onnx"), io.StringIO()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
    finally:
        log.setLevel(level)


def traced(module, args, kwargs=None, dynamic_shapes=None):
    """Returns the module as an ExportedProgram, in which what torch.no_grad() computes is detached:
    the ONNX exporter keeps detach(), but forgets where no gradients were recorded."""
    program = torch.export.export(
        module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
    )
    graph, outputs = program.graph_module.graph, program.graph_signature.output_specs
    for region in list(graph.nodes):
        if region.target is not torch.ops.higher_order.wrap_with_set_grad_enabled:
            continue
        for result in list(region.users) if region.args[0] is False else ():
            with graph.inserting_after(result):
                detached = graph.call_function(torch.ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(detached, lambda user: user is not detached)
            for output in outputs:
                if output.arg.name == result.name:
                    output.arg.name = detached.name
    program.graph_module.recompile()
    return program


def _write(module, args, kwargs, folder):
    """Writes model.onnx into a folder and returns its path."""
    named = module.named_parameters(remove_duplicate=False)
    names = {name for name, parameter in named if _is_hole(parameter)}
    with _quiet(), torch.random.fork_rng(devices=[]):
        exported = traced(module, args, kwargs)
        program = torch.onnx.export(exported, dynamo=True, optimize=False, verbose=False)
    _without_weights(program, names, folder)
    import onnx_ir

    path = os.path.join(folder, "model.onnx")
    onnx_ir.save(program.model, path)
    return path


def _where(module, error):
    """Returns the innermost module whose code is on the way to an error, and the line: "block.0
    (Attention, file.py:7)"."""
    names, found = {id(part): name for name, part in module.named_modules()}, None
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            name = names.get(id(frame.f_locals.get("self")))
            if (
                name is not None
                and frame.f_code.co_name != "_call_impl"
                and "torch/nn/modules/module.py" not in frame.f_code.co_filename
            ):
                file = f"{os.path.basename(frame.f_code.co_filename)}:{trace.tb_lineno}"
                kind = type(frame.f_locals["self"]).__name__
                found = f"{name or 'the module itself'} ({kind}, {file})"
            trace = trace.tb_next
        error = error.__cause__
    return found


def _reason(module, error):
    """Returns one line: the module, the operator, and what is wrong with it."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    lines = [line.strip() for line in str(root).splitlines() if line.strip()]
    text = f"{type(root).__name__}: {lines[0][:300] if lines else ''}"
    operator = re.search(
        r"\b(?:torch\.ops\.)?[a-z_]+\.[a-z_0-9]+\.(?:default|[A-Z]\w+)", str(error) + str(root)
    )
    where = _where(module, error)
    return (f"in {where}: " if where else "") + (f"{operator[0]}: " if operator else "") + text


def _ways(module):
    """Yields copies of a module to export: in training mode; in inference mode, where fewer modules
    draw numbers; and both with plain attention, if it is one of Transformers."""
    attention = "_attn_implementation"
    plain = any(hasattr(getattr(part, "config", None), attention) for part in module.modules())
    for eager, training in [(False, True), (False, False), (True, True), (True, False)]:
        if eager and not plain:
            return
        try:
            made = copied(module, weights=False)
        except ExportError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise ExportError(f"the module cannot be copied: {kind}: {error}") from error
        for part in made.modules():
            config = getattr(part, "config", None)
            if getattr(config, "use_cache", False):  # keys and values are no outputs of training
                config.use_cache = False
            if eager and hasattr(config, attention):
                setattr(config, attention, "eager")
        yield made.train(training)


def report(module, example_inputs, **options):
    """Returns the report of amosc eta for a module, a dict; `options` are those of the command,
    such as loss or convention.

    Raises ExportError, with the module, the operator and the reason, if the module does not export,
    or to a file that amosc cannot read.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the exporter of PyTorch needs onnxscript: pip install onnxscript"
        ) from error
    module = unwrapped(module)
    args, kwargs = arguments(example_inputs)
    reason = None
    for made in _ways(module):
        with tempfile.TemporaryDirectory(prefix="amosc") as folder:
            try:
                path = _write(made, args, kwargs, folder)
            except Exception as error:
                reason = reason or _reason(made, error)
                continue
            try:
                made = amosc.eta(path, **options)
            except amosc.InputError as error:
                if options:  # which may be wrong
                    raise
                reason = reason or f"its file cannot be read: {error}"
                continue
            made["model"] = type(module).__name__
            # A file has the last name of a tied parameter, PyTorch the first.
            named, first = module.named_parameters(remove_duplicate=False), {}
            names = {name: first.setdefault(parameter, name) for name, parameter in named}
            for row in made["params"]:
                row["name"] = names.get(row["name"], row["name"])
            return made
    raise ExportError(reason)
