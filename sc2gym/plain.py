"""States as plain data: what `torch.load(weights_only=True)` takes, and nothing else.

Numbers, strings, lists, tuples, dicts and tensors stay what they are. A few more types that
states are made of become dicts under a mark, and come back as what they were.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_MARK = "__sc2gym__"
_MOST_AXES = 64  # NumPy's own limit


class Copier:
    """Makes plain copies, on the CPU, that share nothing with what they are copies of.

    Memory of tensors is used again for the next copy. From a GPU they go to page-locked memory,
    all at once, which is several times faster.
    """

    def __init__(self) -> None:
        self._kept: dict[str, torch.Tensor] = {}

    def copy(self, value: Any) -> Any:
        """A copy of `value`, good until the next one is made.

        Raises:
            TypeError: There is something in it that is not plain data; the message says where.
        """
        import torch

        before, self._kept = self._kept, {}
        # Tensors that are the same memory, as those of tied layers are, stay so.
        same: dict[tuple[Any, ...], torch.Tensor] = {}
        on_gpu = False

        def tensor(value: torch.Tensor, where: str) -> torch.Tensor:
            nonlocal on_gpu
            value = value.detach()
            if value.layout != torch.strided or value.is_quantized:
                return value.cpu().clone()
            memory = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
            if memory not in same:
                kept = before.get(where)
                if kept is None or kept.shape != value.shape or kept.dtype != value.dtype:
                    kept = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
                kept.copy_(value, non_blocking=True)
                on_gpu |= value.is_cuda
                self._kept[where] = same[memory] = kept
            return same[memory]

        def raw(data: bytes | bytearray) -> torch.Tensor:
            return torch.from_numpy(np.array(bytearray(data), np.uint8))

        def copy(value: Any, where: str) -> Any:
            if value is None or isinstance(value, bool):
                return value
            if isinstance(value, torch.Tensor):
                return tensor(value, where)
            if isinstance(value, np.generic) and value.dtype.kind in "biufc":
                # Not a number of Python's, beside which arrays keep another precision.
                return copy(np.asarray(value), where) | {_MARK: "scalar"}
            for base in (int, float, str):
                if isinstance(value, base):
                    return value if type(value) is base else base(value)
            if isinstance(value, (torch.dtype, torch.device)):
                return value
            if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
                # Of the bytes, since torch lacks some of the types.
                about = {"dtype": value.dtype.str, "shape": list(value.shape)}
                return {_MARK: "array", "bytes": raw(value.tobytes()), **about}
            if isinstance(value, (bytes, bytearray)):
                return {_MARK: "bytes", "bytes": raw(value)}
            if isinstance(value, (list, tuple)):
                items = [copy(item, f"{where}[{i}]") for i, item in enumerate(value)]
                return items if isinstance(value, list) else tuple(items)
            if isinstance(value, deque):
                items = [copy(item, f"{where}[{i}]") for i, item in enumerate(value)]
                return {_MARK: "deque", "items": items, "maxlen": value.maxlen}
            if isinstance(value, (set, frozenset)):
                items = [copy(item, where) for item in value]
                return {_MARK: type(value).__name__, "items": items}
            if isinstance(value, dict):
                if _MARK in value:
                    raise TypeError(f"{where}: the key {_MARK!r} is taken")
                return mapping(value, where)
            raise TypeError(
                f"{where} is a {type(value).__qualname__}; a checkpoint holds numbers, strings,"
                " lists, dicts, tensors and arrays, or what has state_dict and load_state_dict"
            )

        def mapping(value: dict[Any, Any], where: str) -> Any:
            items = {}
            for key, item in value.items():
                if not (key is None or isinstance(key, (str, int, float, tuple))):
                    raise TypeError(f"{where}: a key of it is a {type(key).__qualname__}")
                items[copy(key, where)] = copy(item, f"{where}[{key!r}]")
            if isinstance(value, Counter):
                return {_MARK: "Counter", "items": items}
            if not isinstance(value, OrderedDict):
                return items
            ordered = OrderedDict(items)
            # Versions of modules: torch reads old states by them.
            if isinstance(metadata := getattr(value, "_metadata", None), dict):
                ordered._metadata = mapping(metadata, where)  # type: ignore[attr-defined]
            return ordered

        copied = copy(value, "state")
        if on_gpu:
            torch.cuda.synchronize()
        return copied


def restored(value: Any) -> Any:
    """What a plain copy is a copy of.

    Raises:
        ValueError, TypeError, KeyError: It is not what `Copier` makes.
    """
    if isinstance(value, dict):
        if _MARK in value:
            return _marked(value)
        for key in value:
            value[key] = restored(value[key])
        return value
    if isinstance(value, (list, tuple)):
        items = [restored(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _marked(value: dict[str, Any]) -> Any:
    mark = value[_MARK]
    if mark in ("array", "scalar", "bytes"):
        flat = value["bytes"].cpu().numpy()
        if flat.dtype != np.uint8 or flat.ndim != 1:
            raise ValueError(f"{mark}: not bytes")
        if mark == "bytes":
            return flat.tobytes()
        dtype, shape = np.dtype(value["dtype"]), value["shape"]
        if dtype.kind not in "biufc" or len(shape) > _MOST_AXES or any(n < 0 for n in shape):
            raise ValueError(f"no array of {dtype} of shape {shape}")
        if math.prod(shape) * dtype.itemsize != len(flat):
            raise ValueError(f"{len(flat)} bytes for an array of {dtype} of shape {shape}")
        array = flat.view(dtype).reshape(shape)
        return array[()] if mark == "scalar" else array
    items = restored(value["items"])
    if mark == "deque":
        return deque(items, value["maxlen"])
    kinds: dict[str, type] = {"set": set, "frozenset": frozenset, "Counter": Counter}
    return kinds[mark](items)
