"""How an exported episode is laid out in a file: npz, parquet and pickle.

All hold the same: metadata (plain values, as JSON has them) and named arrays. Reading never runs
anything: npz without pickles, and pickles with nothing but arrays of numbers in them.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

#: What damaged or foreign bytes make a reader raise.
DAMAGE = (
    *(OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError),
    *(MemoryError, OverflowError, RecursionError, NotImplementedError, RuntimeError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError),
)

_METADATA = "metadata"
_PARQUET_KEY = b"sc2gym.export"
_ROW_GROUP_BYTES = 16 << 20
_OBSERVATIONS = "observations/"


class Format(NamedTuple):
    """A kind of file.

    Attributes:
        suffix: What names end with.
        write: Writes metadata and arrays.
        read: Gives both back; raises one of DAMAGE.
    """

    suffix: str
    write: Callable[[BinaryIO, dict[str, Any], Arrays], None]
    read: Callable[[BinaryIO], tuple[dict[str, Any], Arrays]]


def _write_npz(file: BinaryIO, metadata: dict[str, Any], arrays: Arrays) -> None:
    members: Any = {_METADATA: np.array(json.dumps(metadata)), **arrays}
    np.savez_compressed(file, **members)


def _read_npz(file: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    with np.load(file, allow_pickle=False) as members:
        arrays = {name: members[name] for name in members.files}
    return _metadata(str(arrays.pop(_METADATA)[()])), arrays


def _write_pickle(file: BinaryIO, metadata: dict[str, Any], arrays: Arrays) -> None:
    tree: dict[str, Any] = {_METADATA: metadata, "observations": {}}
    for name, array in arrays.items():
        if name.startswith(_OBSERVATIONS):
            tree["observations"][name[len(_OBSERVATIONS) :]] = array
        else:
            tree[name] = array
    # Protocol 4 names the constructors of arrays that every NumPy since 1.0 has.
    pickle.dump(tree, file, protocol=4)


class _DType:
    """Stands for `numpy.dtype` in a pickle: of numbers and truth values only."""

    def __init__(self, code: str, *_: object):
        if not (isinstance(code, str) and len(code) == 2 and code[0] in "biuf"):
            raise pickle.UnpicklingError(f"no arrays of {code!r}")
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class _Array:
    """Stands for an array that a pickle is about to fill, and checks what with."""

    def __init__(self, *_: object):
        self.array: npt.NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if not isinstance(dtype, _DType) or is_fortran or not isinstance(data, bytes):
            raise pickle.UnpicklingError("not an array of numbers in C order")
        flat = np.frombuffer(data, np.dtype(dtype.order + dtype.code))
        self.array = flat.reshape(shape).copy()


class _Unpickler(pickle.Unpickler):
    """Makes stand-ins of this module and nothing else, whatever a pickle asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return _DType
        if (module, name) == ("numpy", "ndarray"):
            return None  # only ever the first argument of:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Array
        raise pickle.UnpicklingError(f"an exported episode has no {module}.{name}")


def _read_pickle(file: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    tree = _Unpickler(file).load()
    metadata, observations = tree.pop(_METADATA), tree.pop("observations")
    named = {**tree, **{f"{_OBSERVATIONS}{name}": each for name, each in observations.items()}}
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is no dict")
    return metadata, {name: each.array for name, each in named.items()}


def pyarrow() -> ModuleType:
    """pyarrow with parquet.

    Raises:
        ModuleNotFoundError: It is missing; says which extra brings it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "parquet needs pyarrow: pip install 'sc2gym[recordings]'", name="pyarrow"
        ) from error
    module: ModuleType = pyarrow
    return module


def _write_parquet(file: BinaryIO, metadata: dict[str, Any], arrays: Arrays) -> None:
    pa = pyarrow()
    rows = max(map(len, arrays.values()))
    columns = {name.replace("/", "."): array for name, array in arrays.items()}
    about = {
        "metadata": metadata,
        "columns": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
    }
    schema = pa.schema(
        [pa.field(name, _arrow_type(pa, array)) for name, array in columns.items()],
        metadata={_PARQUET_KEY: json.dumps(about)},
    )
    per_row = sum(array.nbytes for array in arrays.values()) // rows + 1
    step = max(1, _ROW_GROUP_BYTES // per_row)
    sink = pa.PythonFile(file, "w")
    # What recurs within a picture zstd finds; a dictionary of whole pictures finds nothing.
    with pa.parquet.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as out:
        for begin in range(0, rows, step):
            parts = [
                _arrow_array(pa, array, begin, min(begin + step, rows))
                for array in columns.values()
            ]
            out.write_batch(pa.record_batch(parts, schema=schema))


def _arrow_type(pa: ModuleType, array: npt.NDArray[Any]) -> Any:
    if array.ndim > 2:
        return pa.binary(array[0].nbytes)
    value = pa.from_numpy_dtype(array.dtype)
    return value if array.ndim == 1 else pa.list_(value, array.shape[1])


def _arrow_array(pa: ModuleType, array: npt.NDArray[Any], begin: int, end: int) -> Any:
    part = np.ascontiguousarray(array[begin:end])
    if array.ndim > 2:
        buffers = [None, pa.py_buffer(part.data)]
        return pa.Array.from_buffers(pa.binary(array[0].nbytes), len(part), buffers)
    kind = _arrow_type(pa, array)
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), type=kind)
    # The last row shows what the last step led to; nothing was done there.
    return pa.concat_arrays([pa.array(part, kind), pa.nulls(end - begin - len(part), kind)])


def _read_parquet(file: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    pa = pyarrow()
    try:
        table = pa.parquet.ParquetFile(pa.PythonFile(file, "r")).read()
        about = _metadata(table.schema.metadata[_PARQUET_KEY].decode())
        arrays = {}
        for name, dtype, shape in about["columns"]:
            column = table.column(name.replace("/", ".")).slice(0, shape[0])
            arrays[name] = _from_arrow(pa, column.combine_chunks(), np.dtype(dtype), shape)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    return about["metadata"], arrays


def _from_arrow(
    pa: ModuleType, column: Any, dtype: np.dtype[Any], shape: list[int]
) -> npt.NDArray[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if len(shape) > 2:
        size = math.prod(shape[1:]) * dtype.itemsize
        if column.type != pa.binary(size) or len(column) != shape[0]:
            raise ValueError("a column does not fit its shape")
        data = memoryview(column.buffers()[1])[column.offset * size :]
        flat = np.frombuffer(data[: shape[0] * size], dtype)
    else:
        if len(shape) == 2:
            column = column.flatten()
        flat = column.to_numpy(zero_copy_only=False).astype(dtype, casting="equiv", copy=False)
    return np.array(flat).reshape(shape)


def _metadata(text: str) -> dict[str, Any]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("its metadata is no object")
    return values


FORMATS = {
    "npz": Format(".npz", _write_npz, _read_npz),
    "parquet": Format(".parquet", _write_parquet, _read_parquet),
    "pickle": Format(".pickle", _write_pickle, _read_pickle),
}


def encode(format: str, metadata: dict[str, Any], arrays: Arrays) -> bytes:
    """A file's bytes."""
    file = io.BytesIO()
    FORMATS[format].write(file, metadata, arrays)
    return file.getvalue()
