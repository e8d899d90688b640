"""_model.py: a compiled model: steps, gradients, updates, outputs, training on files. Private;
amosc.compile() makes it."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, Union

import numpy

from . import _arrays as arrays
from ._library import (
    EVAL,
    RUN,
    TRAIN,
    Double,
    InputError,
    Int,
    Interrupts,
    OnProgress,
    Pointer,
    Progress,
    Session,
    Text,
    Training,
    UsageError,
    Value,
    lib,
    need,
    number,
    text_bytes,
    texts,
)
from ._report import Report
from ._source import Folder, Source, is_module

Batch = Union[Mapping[str, Any], Sequence[Any], None]
PURPOSES = {"train": TRAIN, "eval": EVAL, "run": RUN}
# Options of the command that compile() does not take: those of Model.train(), and those of build().
TRAINING = (
    "steps",
    "epochs",
    "eval_every",
    "patience",
    "save_every",
    "log_every",
    "resume",
    "overwrite",
    "out",
)
BUILDING = (
    "name",
    "minimal",
    "freestanding",
    "no_export",
    "no_gradients",
    "bindings",
    "depfile",
)


class Data:
    """The option data: sources as the command takes them, or arrays, which go to temporary
    files."""

    def __init__(self, value: Any):
        self.folder = Folder()
        self.option: Any = value
        if isinstance(value, Mapping):
            self.option = [
                f"{name}={self._source(k, one)}" for k, (name, one) in enumerate(value.items())
            ]

    def _source(self, k: int, value: Any) -> str:
        if isinstance(value, (str, os.PathLike)):
            return os.fspath(value)
        path = self.folder.path / f"{k}.npy"
        numpy.save(path, arrays.to_numpy(value, "data"))
        return str(path)


def declared(session: Session) -> List[Tuple[str, List[Tuple[str, int]]]]:
    """Returns the inputs of the file: name, and for each axis its name, as the option bind takes
    it, and size or -1."""
    count, values = Int(), ctypes.POINTER(Value)()
    need(lib.amosc_inputs(session.handle, ctypes.byref(count), ctypes.byref(values)))
    inputs = []
    for value in values[: count.value]:
        name = value.name.decode()
        axes = range(max(value.rank, 0))
        inputs.append(
            (
                name,
                [
                    ((value.symbol[a] or f"{name}:{a}".encode()).decode(), value.dim[a])
                    for a in axes
                ],
            )
        )
    return inputs


def bound(options: Mapping[str, Any]) -> List[str]:
    """Returns the names in the option bind."""
    words = [text.decode() for _, text in texts({"bind": options.get("bind")}) if text]
    return [pair.partition("=")[0] for word in words for pair in word.split(",")]


class Compiled:
    """A session and its instance, with the arrays that were asked for."""

    def __init__(self, session: Session, file: str):
        self.session, self.file, self.instance = session, file, Pointer()
        with Interrupts():  # notes are printed by Python
            status = lib.amosc_compile(session.handle, ctypes.byref(self.instance), None)
        need(status)
        self.inputs = arrays.Inputs(session, self.instance, arrays.INPUTS, file)
        self._kinds: Dict[int, arrays.Arrays] = {arrays.INPUTS: self.inputs}

    def of_kind(self, kind: int) -> arrays.Arrays:
        if kind not in self._kinds:
            self._kinds[kind] = arrays.Arrays(self.session, self.instance, kind, self.file)
        return self._kinds[kind]


class Model:
    """A model compiled for this machine, with its parameters and the state of its optimizer.
    amosc.compile() makes it.

    A batch is a mapping from names of inputs to arrays, or a sequence in the order of the inputs;
    it has exactly the types and shapes of `inputs`. Arrays are those of NumPy, or have
    __dlpack__(), such as tensors of torch on the CPU. They are read in place if they are
    C-contiguous at a multiple of 64 bytes, as tensors are, and copied otherwise; the logger "amosc"
    tells which, at the level DEBUG. Without a batch, a call reads what `inputs` holds.

    All arrays of the model are views of its memory: NumPy arrays that calls change, and that may be
    written between calls. A model is used by one thread at a time, different models by different
    threads. Calls release the interpreter's lock.
    """

    def __init__(self, source: Source, purpose: str, options: Mapping[str, Any]):
        if purpose not in PURPOSES:
            raise UsageError(f"purpose: expected {', '.join(PURPOSES)}, found '{purpose}'")
        for name in options:
            if name.rstrip("_") in TRAINING + BUILDING:
                where = "Model.train()" if name in TRAINING else "amosc.build()"
                raise UsageError(f"{name}: an option of {where} does nothing in amosc.compile()")
        self._source, self._purpose, self._options = source, purpose, dict(options)
        self._data = Data(options.get("data"))
        self._options["data"] = self._data.option
        self._file = source.path.name
        self._compiled: Compiled | None = None
        self._declared: List[Tuple[str, List[Tuple[str, int]]]] = []
        if not options.get("update_only"):  # which takes no batches
            with Session(source.path, PURPOSES[purpose], self._options) as session:
                self._declared = declared(session)
        if not self._open() or self._data.option is not None:
            self._compile({})

    # ---- compilation --------------------------------------------------------------------

    def _open(self) -> List[str]:
        """Returns the dimensions of inputs that no option determines."""
        known = bound(self._options)
        if self._options.get("batch"):
            known += [axes[0][0] for _, axes in self._declared if axes]
        axes = [axis for _, axes in self._declared for axis in axes]
        return list(dict.fromkeys(name for name, size in axes if size < 0 and name not in known))

    def _compile(self, bind: Mapping[str, int]) -> None:
        options = {**self._options, "bind": [self._options.get("bind"), dict(bind)]}
        session = Session(self._source.path, PURPOSES[self._purpose], options)
        session.keep = self._source, self._data  # views may outlive the model
        self._compiled = Compiled(session, self._file)

    def _bind(self, batch: Mapping[str, Any]) -> None:
        """Compiles for the shapes of the first batch."""
        bind: Dict[str, int] = {}
        unknown = self._open()
        for name, axes in self._declared:
            shape = numpy.shape(batch[name]) if name in batch else ()
            for (axis, _), size in zip(axes, shape):
                if axis in unknown:
                    bind[axis] = size
        self._compile(bind)

    def _ready(self) -> Compiled:
        if self._compiled is None:
            raise UsageError(
                f"{self._file}: compiled at its first batch; open dimensions: "
                f"{', '.join(self._open())}\n"
                "  help: call step() with a batch first, or give amosc.compile() the option bind"
            )
        return self._compiled

    # ---- calls --------------------------------------------------------------------------

    def _named(self, batch: Any) -> Dict[str, Any]:
        if isinstance(batch, Mapping):
            return dict(batch)
        compiled = self._compiled
        names = list(compiled.inputs) if compiled else [name for name, _ in self._declared]
        if not isinstance(batch, (list, tuple)):
            batch = [batch]
        if len(batch) > len(names):
            help = (
                "" if compiled else "\n  help: give names in the first batch: the loss has inputs"
            )
            raise InputError(
                f"{self._file}: expected arrays of {', '.join(names)}, found {len(batch)}{help}"
            )
        return dict(zip(names, batch))

    def _call(
        self, function: Any, batch: Batch, more: Mapping[str, Any], *to: Any, all: bool = True
    ) -> None:
        if batch is None and not more:
            need(function(self._ready().instance, *to))
            return
        named = {**(self._named(batch) if batch is not None else {}), **more}
        if self._compiled is None:
            self._bind(named)
        own, compiled = [name for name, _ in self._declared], self._ready()
        given = compiled.inputs.check(named, [n for n in compiled.inputs if all or n in own])
        try:
            compiled.inputs.place(compiled.instance, given)
            need(function(compiled.instance, *to))
        finally:
            compiled.inputs.release(compiled.instance, given)

    def _loss(self, function: Any, batch: Batch, more: Mapping[str, Any]) -> float:
        loss = Double()
        self._call(function, batch, more, ctypes.byref(loss))
        return loss.value

    def step(self, batch: Batch = None, **inputs: Any) -> float:
        """Trains on a batch: computes gradients and updates the parameters. Returns the mean loss
        before the update.

        With the option accumulate=N, every N-th call updates the parameters.
        """
        return self._loss(lib.amos_step, batch, inputs)

    def gradient(self, batch: Batch = None, **inputs: Any) -> float:
        """Computes the gradients of a batch, which are then in `gradients`. Returns the mean
        loss. The option accumulate is ignored: each call replaces the gradients."""
        return self._loss(lib.amos_gradient, batch, inputs)

    def update(self) -> None:
        """Updates the parameters by `gradients`, which may be changed before: clipped, or averaged
        over processes, or over batches, which the option accumulate does not do here."""
        need(lib.amos_update(self._ready().instance))

    def eval(self, batch: Batch = None, **inputs: Any) -> float:
        """Returns the mean loss of a batch for inference: without dropout, and with running
        statistics."""
        return self._loss(lib.amos_evaluate, batch, inputs)

    def forward(self, batch: Batch = None, **inputs: Any) -> Dict[str, numpy.ndarray]:
        """Returns the outputs of a batch by name, for inference. Inputs of the loss may be left
        out.

        The arrays are those of `outputs`, so the next call of forward() overwrites them.
        """
        self._call(lib.amos_forward, batch, inputs, all=False)
        return self.outputs

    def metric(self, name: str) -> float:
        """Returns a metric of the last call of step(), gradient() or eval(): "loss", or "accuracy"
        if the loss is a cross
        entropy; NaN if there is none."""
        return float(lib.amos_metric(self._ready().instance, name.encode()))

    def train(
        self, data: Any = None, progress: Callable[[Progress], Any] | None = None, **options: Any
    ) -> Progress:
        """Trains on files or arrays as the command `amosc train` does, from where the model stands.
        Returns the last progress.

        data      sources as the option takes them ("train.npz", ["x=x.npy", ...]), or a mapping
                  from inputs to sources or arrays, samples along axis 0; default: that of
                  amosc.compile()
        progress  is called with a Progress every log_every updates and at the end; a result that is
                  true stops the training
        options   steps, epochs, split, eval_every, patience, save_every, log_every, seed, mask, out
                  (a run directory), resume, overwrite

        Two trainings of five steps equal one of ten. The weights are those of the last step.
        """
        own = self._data if data is None else Data(data)
        words: List[bytes] = []
        for name, value in texts({"data": own.option, **options}):
            words += [name.encode(), b"1" if value is None else value]
        thrown: List[BaseException] = []
        last = Progress()

        def show(_: Any, now: Any) -> bool:
            try:
                ctypes.memmove(ctypes.byref(last), now, min(now.contents.size, ctypes.sizeof(last)))
                return bool(progress and progress(last)) or interrupts.seen
            except BaseException as e:  # none may pass through C
                thrown.append(e)
                return True

        call = OnProgress(show)
        training = Training(ctypes.sizeof(Training), (Text * (len(words) + 1))(*words, None), call)
        instance = self._ready().instance
        with Interrupts() as interrupts:
            status = lib.amos_fit(instance, ctypes.byref(training))
        if thrown:
            raise thrown[0]
        need(status)
        return last

    # ---- arrays -------------------------------------------------------------------------

    @property
    def inputs(self) -> arrays.Arrays:
        """The arrays that a call without a batch reads."""
        return self._ready().inputs

    @property
    def outputs(self) -> Dict[str, numpy.ndarray]:
        """The outputs of the last call of forward()."""
        return arrays.output_arrays(self._ready().session, self._ready().instance)

    @property
    def parameters(self) -> arrays.Arrays:
        """The trained weights."""
        return self._ready().of_kind(arrays.PARAMETERS)

    @property
    def gradients(self) -> arrays.Arrays:
        """The gradients of the parameters, of the last call of gradient()."""
        return self._ready().of_kind(arrays.GRADIENTS)

    @property
    def frozen(self) -> arrays.Arrays:
        """The weights that are not trained."""
        return self._ready().of_kind(arrays.FROZEN)

    @property
    def buffers(self) -> arrays.Arrays:
        """The running statistics."""
        return self._ready().of_kind(arrays.BUFFERS)

    @property
    def state(self) -> arrays.Arrays:
        """The state of the optimizer."""
        return self._ready().of_kind(arrays.STATE)

    # ---- state --------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of updates so far, of which checkpoints keep count."""
        return int(lib.amos_steps(self._ready().instance))

    @property
    def rate(self) -> float:
        """The factor by which updates multiply their step size, for schedules; 1 at first.
        Checkpoints keep it."""
        return float(lib.amos_rate(self._ready().instance))

    @rate.setter
    def rate(self, factor: float) -> None:
        need(lib.amos_set_rate(self._ready().instance, number("rate", factor)))

    @property
    def report(self) -> Report:
        """The eta report of the model, as amosc.eta() returns it."""
        return Report(json.loads(self._ready().session.text(lib.amosc_eta)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves a checkpoint: weights, state of the optimizer and number of updates. The command
        reads it, too."""
        need(lib.amos_save(self._ready().instance, text_bytes("path", path)))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads a checkpoint of the same model, or the best of a run directory. What follows has
        the bits that it would have
        had without the interruption."""
        need(lib.amos_load(self._ready().instance, text_bytes("path", path)))

    def store(self) -> bytes:
        """Returns a checkpoint as bytes, for restore()."""
        to = ctypes.create_string_buffer(lib.amos_checkpoint_bytes(self._ready().instance))
        need(lib.amos_store(self._ready().instance, to, len(to)))
        return to.raw

    def restore(self, checkpoint: bytes) -> None:
        """Loads a checkpoint of store(), or the bytes of a file of save()."""
        held = checkpoint if isinstance(checkpoint, bytes) else bytes(memoryview(checkpoint))
        need(lib.amos_restore(self._ready().instance, held, len(held)))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes a copy of the model's file with these weights, for inference unless
        keep_training=True was given."""
        need(lib.amosc_export(self._ready().session.handle, text_bytes("path", path)))

    def load_into(self, module: Any) -> None:
        """Copies the weights to the parameters and buffers of a torch.nn.Module that have their
        names."""
        import torch

        if not is_module(module):
            raise TypeError(f"expected a torch.nn.Module, found {type(module).__name__}")
        weights = {**self.parameters, **self.frozen, **self.buffers}
        own = dict(module.named_buffers(remove_duplicate=False))
        own.update(module.named_parameters(remove_duplicate=False))
        missing = [name for name in self.parameters if name not in own]
        if missing:
            raise KeyError(f"the module has no parameter '{missing[0]}'")
        with torch.no_grad():
            for name, to in own.items():
                if name in weights:
                    to.copy_(torch.from_numpy(weights[name]))

    def __reduce__(self) -> str:
        raise TypeError(
            "an amosc.Model cannot be pickled or copied\n"
            "  help: store() gives its weights and state as bytes, which restore() of another takes"
        )

    def __repr__(self) -> str:
        if self._compiled is None:
            return (
                f"amosc.Model of {self._file}, compiled at its first batch: "
                f"{', '.join(self._open())} open"
            )
        own = self._compiled.inputs
        inputs = ", ".join(f"{name} {own.spec(name)}" for name in own)
        count = sum(a.size for a in self.parameters.values())
        return (
            f"amosc.Model of {self._file}: inputs {inputs}; "
            f"{count} parameters, {self.steps} updates"
        )
