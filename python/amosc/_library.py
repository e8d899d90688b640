"""_library.py: libamosc by ctypes: its functions, errors and sessions. Private; amosc.h and amos.h
describe the functions."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import weakref
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

log = logging.getLogger("amosc")

Pointer, I64, Text, Int, Double = (
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_double,
)


# ---- errors -----------------------------------------------------------------------------


class Error(Exception):
    """A call of amosc failed. The text is that of the command: what is wrong, then how to fix
    it."""


class InputError(Error):
    """A model, an array or the value of an option is invalid."""


class UsageError(Error):
    """An option is unknown, malformed or has no effect, or a call does not fit what was
    compiled."""


class MachineError(Error):
    """The system failed: disk full, out of memory, no such device."""


class Bug(Error):
    """A defect of amosc. The model that it happened in can no longer be used."""


ERRORS = {1: InputError, 2: UsageError, 3: MachineError, 5: Bug}  # by the codes of amosc.h


for _error in (Error, *ERRORS.values()):
    _error.__module__ = "amosc"


# ---- the library ------------------------------------------------------------------------


class Value(ctypes.Structure):  # struct amosc_value
    _fields_ = [
        ("name", Text),
        ("type", Text),
        ("rank", Int),
        ("dim", I64 * 10),
        ("symbol", Text * 10),
    ]


class Progress(ctypes.Structure):
    """How a training stands; NaN: there is no such value."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("step", I64),
        ("steps", I64),
        ("loss", Double),
        ("accuracy", Double),
        ("eval_loss", Double),
        ("eval_accuracy", Double),
        ("epochs", Double),
        ("samples_per_s", Double),
        ("seconds", Double),
    ]

    def __repr__(self) -> str:
        names = [field[0] for field in self._fields_[1:]]
        return f"Progress({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


Listener = ctypes.CFUNCTYPE(None, Pointer, Text)
OnProgress = ctypes.CFUNCTYPE(Int, Pointer, ctypes.POINTER(Progress))


class Training(ctypes.Structure):  # struct amos_training
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("options", ctypes.POINTER(Text)),
        ("progress", OnProgress),
        ("context", Pointer),
    ]


_session, _instance, _array = [Pointer], [Pointer], [Pointer, Int, I64]
_loss = [Pointer, ctypes.POINTER(Double)]
_values = [Pointer, ctypes.POINTER(Int), ctypes.POINTER(ctypes.POINTER(Value))]
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {  # name: result, arguments
    "amos_error": (Text, []),
    "amosc_version": (Text, []),
    "amosc_open": (Int, [Text, Int, ctypes.POINTER(Pointer)]),
    "amosc_close": (None, _session),
    "amosc_option": (Int, [Pointer, Text, Text]),
    "amosc_listen": (None, [Pointer, Listener, Pointer]),
    "amosc_inputs": (Int, _values),
    "amosc_outputs": (Int, _values),
    "amosc_eta": (Int, [Pointer, ctypes.POINTER(Text)]),
    "amosc_amos_defaults": (Int, [Pointer, Double, Double]),
    "amosc_compile": (Int, [Pointer, ctypes.POINTER(Pointer), Pointer]),
    "amosc_export": (Int, [Pointer, Text]),
    "amosc_write": (Int, [Pointer, Text]),
    "amosc_show": (Int, [Pointer, Text, Text, ctypes.POINTER(Text)]),
    "amos_count": (I64, [Pointer, Int]),
    "amos_name": (Text, _array),
    "amos_type": (Int, _array),
    "amos_rank": (I64, _array),
    "amos_shape": (ctypes.POINTER(I64), _array),
    "amos_values": (Pointer, _array),
    "amos_set_input": (Int, [Pointer, I64, Pointer]),
    "amos_output_shape": (None, [Pointer, I64, ctypes.POINTER(I64)]),
    "amos_forward": (Int, _instance),
    "amos_evaluate": (Int, _loss),
    "amos_step": (Int, _loss),
    "amos_gradient": (Int, _loss),
    "amos_update": (Int, _instance),
    "amos_steps": (I64, _instance),
    "amos_rate": (Double, _instance),
    "amos_set_rate": (Int, [Pointer, Double]),
    "amos_metric": (Double, [Pointer, Text]),
    "amos_save": (Int, [Pointer, Text]),
    "amos_load": (Int, [Pointer, Text]),
    "amos_checkpoint_bytes": (I64, _instance),
    "amos_store": (Int, [Pointer, Pointer, I64]),
    "amos_restore": (Int, [Pointer, Text, I64]),
    "amos_fit": (Int, [Pointer, ctypes.POINTER(Training)]),
}


def _find() -> str:
    """Returns the library: $AMOSC_LIBRARY, that of the wheel, or what the loader finds."""
    own = Path(__file__).resolve().parent / "lib" / "libamosc.so"
    return os.environ.get("AMOSC_LIBRARY") or (str(own) if own.exists() else "libamosc.so.0")


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        found = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(
            f"amosc: cannot load its library: {e}\n  help: install the wheel of amosc, "
            "or set $AMOSC_LIBRARY to the libamosc.so of an installed amosc"
        ) from e
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(found, name, None)
        if function is None:
            raise ImportError(
                f"amosc: {path} has no {name}(): it is of another version than this module"
            )
        function.restype, function.argtypes = result, arguments
    return found


lib = _load()


def need(status: int) -> None:
    """Raises the error of a call that failed, indented as the command prints it."""
    if status:
        text = lib.amos_error().decode(errors="replace").replace("\nhelp: ", "\n  help: ")
        raise ERRORS.get(status, Error)(text)


# ---- values ----------------------------------------------------------------------------


def number(name: str, value: Any) -> float:
    """Returns a number as the library takes it."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: expected a number, found {value!r}")
    return float(value)


def text_bytes(name: str, text: str | os.PathLike[str]) -> bytes:
    """Returns a text or a path as the library takes it, which would end at a zero byte."""
    found = os.fsencode(text)
    if b"\0" in found:
        raise ValueError(f"{name}: expected no zero byte, found {text!r}")
    return found


class Interrupts:
    """Keeps Ctrl-C until the end of a call that runs Python functions, of which none may raise:
    `seen` says whether it came. Elsewhere than in the main thread, and if the program ignores it or
    handles it outside of Python, it does nothing."""

    def __enter__(self) -> "Interrupts":
        self.seen = False
        self._handler: Any = None
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.getsignal(signal.SIGINT)
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *_: Any) -> None:
        self.seen = True

    def __exit__(self, *_: Any) -> None:
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
        if self.seen:
            self._handler(signal.SIGINT, None)


# ---- sessions ---------------------------------------------------------------------------


def _texts(name: str, value: Any) -> Iterator[Tuple[str, bytes | None]]:
    """Yields an option as the library takes it, once for each value of a list or pair of a
    mapping."""
    if value is None or value is False:
        return
    if value is True:
        yield name, None
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield name, text_bytes(name, f"{key}={one}")
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(name, one)
    elif isinstance(value, (str, os.PathLike)):
        yield name, text_bytes(name, value)
    elif (
        isinstance(value, (int, float))
        or hasattr(value, "__index__")
        or hasattr(value, "__float__")
    ):
        yield name, str(value).encode()
    else:
        raise TypeError(
            f"{name}: expected a number, a text, a path, a flag, or a list or mapping of these, "
            f"found {type(value).__name__}"
        )


def texts(options: Mapping[str, Any]) -> Iterator[Tuple[str, bytes | None]]:
    """Yields options given as keyword arguments. An underscore at the end of a name, as of for_, is
    dropped."""
    for name, value in options.items():
        yield from _texts(name.rstrip("_"), value)


class Session:
    """A model file with options: struct amosc. Notes go to the logger "amosc"."""

    def __init__(self, path: str | os.PathLike[str], purpose: int, options: Mapping[str, Any]):
        self.handle = Pointer()
        self.keep: Any = None  # what must exist as long as the session
        self._listen = Listener(
            lambda _, text: log.warning("%s", text.decode(errors="replace").rstrip())
        )
        need(lib.amosc_open(text_bytes("path", path), purpose, ctypes.byref(self.handle)))
        self._close = weakref.finalize(self, lib.amosc_close, self.handle)
        self._close.atexit = False
        lib.amosc_listen(self.handle, self._listen, None)
        for name, value in texts(options):
            need(lib.amosc_option(self.handle, name.encode(), value))

    def text(self, function: Any, *arguments: Any) -> str:
        """Returns what a function writes to its last argument."""
        to = Text()
        need(function(self.handle, *arguments, ctypes.byref(to)))
        return (to.value or b"").decode()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self._close()


TRAIN, EVAL, RUN, GRAD, REPORT = range(5)  # enum amosc_purpose
