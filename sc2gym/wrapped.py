"""The state of Gymnasium's wrappers: statistics, stacked frames, running means.

They have no `state_dict`, so what changes in them is taken from their attributes: numbers, arrays,
queues, and Gymnasium's own objects made of these. Wrappers from elsewhere are not touched; nor is
what holds anything else, such as a video that is being recorded.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np

_OBJECT = "attributes"


def unwrapped(env: Any) -> Any:
    """What wrappers wrap, or what is none itself."""
    return getattr(env, "unwrapped", env)


def wrapper_states(env: Any) -> list[dict[str, Any]]:
    """The states of the wrappers around an environment, outermost first."""
    return [
        {"kind": type(wrapper).__qualname__, _OBJECT: _attributes(wrapper)}
        for wrapper in _wrappers(env)
    ]


def load_wrapper_states(env: Any, states: list[dict[str, Any]]) -> list[str]:
    """Puts states back; what does not fit stays as it is.

    Returns:
        What did not, in words.
    """
    wrappers = _wrappers(env)
    kinds = [type(wrapper).__qualname__ for wrapper in wrappers]
    saved = [state["kind"] for state in states]
    if kinds != saved:
        return [f"saved with the wrappers {saved}, now they are {kinds}"]
    problems = []
    for wrapper, state in zip(wrappers, states, strict=True):
        misfit = _misfit(wrapper, state[_OBJECT])
        if misfit is None:
            _put(wrapper, state[_OBJECT])
        else:
            problems.append(f"{type(wrapper).__qualname__}.{misfit} is of another size or type")
    return problems


def _wrappers(env: Any) -> list[Any]:
    found = []
    while isinstance(env, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        if _is_gymnasiums(env):
            found.append(env)
        env = env.env
    return found


def _is_gymnasiums(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "gymnasium"


def _attributes(value: Any) -> dict[str, Any]:
    found = {}
    for name, item in vars(value).items():
        if _is_plain(item):
            found[name] = item
        elif name != "env" and _is_object(item) and (inner := _attributes(item)):
            found[name] = {_OBJECT: inner}
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (bool, int, float, np.generic)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    if isinstance(value, deque):
        return all(_is_plain(item) for item in value)
    # As observations in a queue: of several arrays.
    return isinstance(value, dict) and bool(value) and all(map(_is_plain, value.values()))


def _is_object(value: Any) -> bool:
    return (
        _is_gymnasiums(value)
        and hasattr(value, "__dict__")
        and not isinstance(value, (gymnasium.Space, gymnasium.Env, gymnasium.vector.VectorEnv))
        and not isinstance(value, type)
    )


def _misfit(target: Any, attributes: dict[str, Any]) -> str | None:
    for name, saved in attributes.items():
        if name not in vars(target):
            return name
        now = getattr(target, name)
        if isinstance(saved, dict) and _OBJECT in saved:
            inner = _misfit(now, saved[_OBJECT]) if _is_object(now) else "?"
            if inner is not None:
                return f"{name}.{inner}"
        elif not (_is_plain(saved) and (now is None or _is_plain(now))):
            return name
        elif isinstance(saved, np.ndarray):
            # A number before the first reset can be an array after it.
            if isinstance(now, np.ndarray) and now.shape != saved.shape:
                return name
        elif isinstance(saved, deque) and getattr(now, "maxlen", None) != saved.maxlen:
            return name
    return None


def _put(target: Any, attributes: dict[str, Any]) -> None:
    for name, saved in attributes.items():
        if isinstance(saved, dict) and _OBJECT in saved:
            _put(getattr(target, name), saved[_OBJECT])
        else:
            setattr(target, name, saved)
