"""_arrays.py: arrays of a model as NumPy arrays, and arrays of a program as the model reads them.
Private.

Arrays of the model are views of its memory, which stays as long as one of them. Arrays of a program
are those of NumPy and of everything that has __dlpack__(): torch, JAX, CuPy.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy

from ._library import InputError, lib

log = logging.getLogger("amosc")
INPUTS, OUTPUTS, PARAMETERS, GRADIENTS, FROZEN, BUFFERS, STATE = range(7)  # enum amos_kind
KINDS = "input", "output", "parameter", "gradient", "frozen weight", "buffer", "state"
# enum amos_type. bf16 is its bits, as uint16: NumPy has no such type.
TYPES = [
    (name, numpy.dtype(code))
    for name, code in (
        ("f64", "f8"),
        ("f32", "f4"),
        ("f16", "f2"),
        ("bf16", "u2"),
        ("i64", "i8"),
        ("i32", "i4"),
        ("i16", "i2"),
        ("i8", "i1"),
        ("u64", "u8"),
        ("u32", "u4"),
        ("u16", "u2"),
        ("u8", "u1"),
        ("bool", "?"),
    )
]
ALIGNMENT = 64
CPU, PINNED = 1, 3  # of DLPack's devices, those that the CPU reads


class _Memory:
    """Memory of `owner`, which NumPy keeps as long as an array in it."""

    def __init__(self, owner: Any, address: int, dtype: numpy.dtype, shape: Tuple[int, ...]):
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "version": 3,
        }


class Spec:
    """Name, type and shape of an array of an instance."""

    def __init__(self, instance: Any, kind: int, i: int):
        self.number = i
        self.name = lib.amos_name(instance, kind, i).decode()
        self.type, self.dtype = TYPES[lib.amos_type(instance, kind, i)]
        self.shape = tuple(lib.amos_shape(instance, kind, i)[: lib.amos_rank(instance, kind, i)])

    def __str__(self) -> str:
        return f"{self.type}[{','.join(map(str, self.shape))}]"


def _described(array: Any) -> str:
    names = [name for name, dtype in TYPES if dtype == array.dtype and name != "bf16"]
    return f"{names[0] if names else array.dtype}[{','.join(map(str, array.shape))}]"


def _bits(value: Any) -> Any:
    """Returns an array of bf16 as that of its bits, any other as it is."""
    if not str(getattr(value, "dtype", "")).endswith("bfloat16"):
        return value
    if isinstance(value, numpy.ndarray):
        return value.view("u2")
    import torch

    return value.view(torch.int16).numpy().view("u2") if isinstance(value, torch.Tensor) else value


def to_numpy(value: Any, where: str) -> numpy.ndarray:
    """Returns an array of a program as one of NumPy, without a copy. Numbers and lists become
    arrays."""
    if getattr(value, "requires_grad", False):
        value = value.detach()
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] not in (CPU, PINNED):
        raise InputError(f"{where}: expected an array of the CPU, found one of another device")
    value = _bits(value)
    if hasattr(value, "__dlpack__") and not isinstance(value, numpy.ndarray):
        return numpy.from_dlpack(value)
    return numpy.asarray(value)


def fitting(spec: Spec, value: Any, where: str) -> numpy.ndarray:
    """Returns an array of the type and shape of `spec`. Only numbers and lists are converted: an
    array keeps its type."""
    array = to_numpy(value, where)
    if not hasattr(value, "dtype") and numpy.can_cast(array.dtype, spec.dtype, "same_kind"):
        array = array.astype(spec.dtype)
    if array.dtype != spec.dtype or array.shape != spec.shape:
        help = f"\n  help: convert it to {spec.dtype}" if array.shape == spec.shape else ""
        raise InputError(f"{where}: expected {spec}, found {_described(array)}{help}")
    return array


def in_place(array: numpy.ndarray) -> bool:
    """True if the model can read the array where it is."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0 and array.dtype.isnative


class Arrays(Mapping[str, numpy.ndarray]):
    """The arrays of one kind by name: views of the model's memory, to read and to write.

    arrays[name] is a NumPy array; torch.from_numpy() and others take it without a copy.
    arrays[name] = values copies values into it. A parameter that the loss does not depend on has no
    gradient.
    """

    def __init__(self, session: Any, instance: Any, kind: int, file: str):
        self._file, self._kind = file, KINDS[kind]
        self._spec = {
            s.name: s
            for s in (Spec(instance, kind, i) for i in range(lib.amos_count(instance, kind)))
        }
        self._array: Dict[str, numpy.ndarray] = {}
        for name, spec in self._spec.items():
            address = lib.amos_values(instance, kind, spec.number)
            if address:
                self._array[name] = numpy.asarray(_Memory(session, address, spec.dtype, spec.shape))

    def __getitem__(self, name: str) -> numpy.ndarray:
        return self._array[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._array[name][...] = self.fitting(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._array)

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {self._spec[name]}" for name in self._array)

    def spec(self, name: str) -> Spec:
        return self._spec[name]

    def fitting(self, name: str, value: Any) -> numpy.ndarray:
        return fitting(self._spec[name], value, f"{self._file}: {self._kind} '{name}'")


class Inputs(Arrays):
    """The arrays that a call without a batch reads."""

    def check(self, batch: Mapping[str, Any], needed: List[str]) -> Dict[str, numpy.ndarray]:
        """Returns the arrays of a batch. Fails if one is missing, is no input or does not fit."""
        unknown = [name for name in batch if name not in self]
        missing = [name for name in needed if name not in batch]
        if unknown or missing:
            wrong = f"no input '{unknown[0]}'" if unknown else f"input '{missing[0]}' is missing"
            found = ", ".join(batch) or "none"
            raise InputError(f"{self._file}: {wrong}; expected {', '.join(self)}; found {found}")
        return {name: self.fitting(name, value) for name, value in batch.items()}

    def place(self, instance: Any, arrays: Mapping[str, numpy.ndarray]) -> None:
        """Lets the next call read the arrays where they are, or copies them if it cannot."""
        for name, array in arrays.items():
            number = self._spec[name].number
            if (
                array.size
                and in_place(array)
                and not lib.amos_set_input(instance, number, array.ctypes.data)
            ):
                continue
            log.debug(
                "input '%s' is copied: in place are C-contiguous arrays at a multiple of %d bytes",
                name,
                ALIGNMENT,
            )
            self._array[name][...] = array

    def release(self, instance: Any, arrays: Mapping[str, numpy.ndarray]) -> None:
        """Lets calls read the model's own arrays again."""
        for name in arrays:
            lib.amos_set_input(instance, self._spec[name].number, None)


def output_arrays(session: Any, instance: Any) -> Dict[str, numpy.ndarray]:
    """Returns the outputs of the last call, each in the shape that it has."""
    arrays = {}
    for i in range(lib.amos_count(instance, OUTPUTS)):
        spec = Spec(instance, OUTPUTS, i)
        shape = (ctypes.c_int64 * len(spec.shape))()
        lib.amos_output_shape(instance, i, shape)
        memory = _Memory(session, lib.amos_values(instance, OUTPUTS, i), spec.dtype, tuple(shape))
        arrays[spec.name] = numpy.asarray(memory)
    return arrays
