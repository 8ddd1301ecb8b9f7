"""pysc2 4.0.0 under today's Python and protobuf, with nothing patched.

Two things stand in the way. `s2clientprotocol` is generated code of protobuf 3.19 or older, which
protobuf 4 and later refuse; but it carries its schemas as serialized descriptors, and from those
any protobuf builds the classes, with its fast implementation. And two modules use what Python has
since removed: `pysc2.lib.colors` the second argument of `random.shuffle` (gone in 3.11), and
`s2protocol.versions`, under `pysc2.lib.replay`, the module `imp` (gone in 3.12). They are run from
their own files with that one import answered by a stand-in, which only the module being run sees.
`builtins`, the import system and the standard library stay as they are; all that is new afterwards
is that modules which could not be imported now are.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import IO, Any

EXTRA = "pip install 'sc2gym[game]'"

# In order of their imports: each file's descriptor needs those it imports to be known already.
SCHEMAS = (
    "common_pb2",
    "raw_pb2",
    "data_pb2",
    "debug_pb2",
    "error_pb2",
    "query_pb2",
    "score_pb2",
    "spatial_pb2",
    "ui_pb2",
    "sc2api_pb2",
)

# The serialized descriptor in code that protobuf 3 generated, as a string literal of latin-1.
_SERIALIZED = re.compile(r"serialized_pb=_b\(('(?:[^'\\]|\\.)*')\)")

_lock = threading.Lock()


class GameNotInstalledError(ImportError):
    """pysc2, or something it needs, is not installed; the message says how to get it."""


def load_schemas() -> ModuleType:
    """Makes `s2clientprotocol` importable and returns `s2clientprotocol.sc2api_pb2`.

    Every later `from s2clientprotocol import ...` then works as usual. Modules that are
    loaded already, and releases whose generated code protobuf accepts, are left to Python.

    Raises:
        GameNotInstalledError: protobuf or s2clientprotocol is missing.
    """
    with _lock:
        return _load_schemas()


def load_pysc2() -> ModuleType:
    """Makes `pysc2` importable and returns it; any `from pysc2.lib import ...` works after it.

    Raises:
        GameNotInstalledError: pysc2 or one of its requirements is missing.
    """
    with _lock:
        _load_schemas()
        pysc2 = _import("pysc2")
        # features imports colors, and nearly everything imports features.
        _run_with("pysc2.lib.colors", {"random": _module("random", shuffle=_fixed_shuffle)})
        imp = _module("imp", find_module=_find_module, load_module=_load_module)
        _run_with("s2protocol.versions", {"imp": imp})
        return pysc2


def _load_schemas() -> ModuleType:
    _import("google.protobuf")
    _import("s2clientprotocol")
    for schema in SCHEMAS:
        _load_schema(f"s2clientprotocol.{schema}")
    return sys.modules["s2clientprotocol.sc2api_pb2"]


def _load_schema(name: str) -> None:
    if name in sys.modules:
        return
    spec, source = _spec_and_source(name)
    serialized = _SERIALIZED.search(source)
    if serialized is None:
        _import(name)
        return
    from google.protobuf import descriptor_pool
    from google.protobuf.internal import builder  # what protobuf's own generated code calls

    descriptor = descriptor_pool.Default().AddSerializedFile(
        ast.literal_eval(serialized.group(1)).encode("latin-1")
    )
    module = importlib.util.module_from_spec(spec)
    module.DESCRIPTOR = descriptor  # type: ignore[attr-defined]
    builder.BuildMessageAndEnumDescriptors(descriptor, module.__dict__)
    builder.BuildTopDescriptorsAndMessages(descriptor, name, module.__dict__)
    _register(name, module)


def _run_with(name: str, imports: Mapping[str, ModuleType]) -> None:
    """Runs module `name` from its file, its imports of the names in `imports` answered so.

    The module gets builtins of its own, whose `__import__` knows the stand-ins; no other
    module's imports pass through it, not even those of what this one imports. Compiled here
    rather than by the import system, so that no bytecode cache is written or read.
    """
    if name in sys.modules:
        return
    _import(name.rpartition(".")[0])
    spec, source = _spec_and_source(name)

    def import_(
        wanted: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and wanted in imports:
            return imports[wanted]
        return builtins.__import__(wanted, globals, locals, fromlist or (), level)

    module = importlib.util.module_from_spec(spec)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_}
    code = compile(source, spec.origin or name, "exec", dont_inherit=True)
    sys.modules[name] = module  # before running, as the import system does
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    _register(name, module)


def _register(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


def _spec_and_source(name: str) -> tuple[ModuleSpec, str]:
    spec = importlib.util.find_spec(name)
    source = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if spec is None or source is None:
        raise GameNotInstalledError(f"{name} is missing from its package: {EXTRA}", name=name)
    return spec, source


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise GameNotInstalledError(
            f"recording games needs pysc2 ({error.name} is not installed): {EXTRA}",
            name=error.name,
        ) from error


def _module(name: str, **attributes: Callable[..., object]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(attributes)
    return module


def _fixed_shuffle(items: list[object], uniform: Callable[[], float] | None = None) -> None:
    """`random.shuffle` as of Python 3.10, where the caller could give the random numbers."""
    uniform = uniform or random.random
    for i in reversed(range(1, len(items))):
        j = int(uniform() * (i + 1))
        items[i], items[j] = items[j], items[i]


def _find_module(name: str, paths: Sequence[str]) -> tuple[IO[str] | None, str, None]:
    """The one use that s2protocol makes of `imp.find_module`: a source file in a folder."""
    spec = PathFinder.find_spec(name, list(paths))
    if spec is None or spec.origin is None:
        raise ImportError(f"No module named {name!r}", name=name)
    return None, spec.origin, None


def _load_module(name: str, file: IO[str] | None, path: str, description: Any) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # _find_module gave a source file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
