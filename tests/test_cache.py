"""The bound on what is kept in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc2gym.cache import Cache, available_memory


@given(
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=60),
)
def test_it_never_holds_more_than_its_bound_and_drops_the_oldest_first(
    bound: int, uses: list[tuple[int, int]]
) -> None:
    cache = Cache(bound)
    kept: dict[int, int] = {}  # in the order of their last use
    sizes: dict[int, int] = {}
    for key, size in uses:
        size = sizes.setdefault(key, size)
        made: list[int] = []

        def make(key: int = key, size: int = size, made: list[int] = made) -> tuple[str, int]:
            made.append(key)
            return f"value {key}", size

        assert cache.get(key, make) == f"value {key}"
        assert bool(made) == (key not in kept)
        kept.pop(key, None)
        if size <= bound:
            while sum(kept.values()) + size > bound:
                del kept[next(iter(kept))]
            kept[key] = size
        info = cache.info()
        assert info.nbytes == sum(kept.values()) <= bound
        assert info.replays == len(kept)


def test_an_exception_leaves_nothing_behind() -> None:
    cache = Cache(10)

    def fail() -> tuple[str, int]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        cache.get("a", fail)
    assert cache.get("a", lambda: ("there", 1)) == "there"
    assert cache.info()[:4] == (0, 2, 0, 1)


def test_threads_that_make_the_same_value_share_one() -> None:
    cache = Cache(10)
    gate = threading.Barrier(4, timeout=10)
    values: list[object] = []

    def make() -> tuple[object, int]:
        gate.wait()
        return object(), 1

    threads = [
        threading.Thread(target=lambda: values.append(cache.get("a", make))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(values) == 4
    assert len(set(map(id, values))) == 1
    assert cache.info().nbytes == 1


def test_clearing() -> None:
    cache = Cache(10)
    cache.get("a", lambda: ("value", 3))
    cache.clear()
    assert cache.info()[3:5] == (0, 0)


# Memory


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       8000000 kB\nMemFree: 10 kB\nMemAvailable:    4000000 kB\n"


def test_a_machine_without_groups(tmp_path: Path) -> None:
    assert available_memory(_machine(tmp_path, {"proc/meminfo": MEMINFO})) == 4_000_000 * 1024


def test_groups_of_version_2_bound_it_at_every_level(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": "100\n",
            "sys/fs/cgroup/outer/memory.max": "5000\n",
            "sys/fs/cgroup/outer/memory.current": "2000\n",
        },
    )
    assert available_memory(root) == 3000


def test_groups_of_version_1(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/other\n4:memory:/job\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "7000\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "7500\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
        },
    )
    assert available_memory(root) == 0


def test_no_such_files(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == 4 << 30


def test_this_machine() -> None:
    assert 1 << 20 < available_memory() < 1 << 50
    assert Cache().max_bytes > 1 << 18
