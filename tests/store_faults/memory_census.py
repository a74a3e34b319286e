"""What a server of the rig has in memory, as the server itself reports it: S30 judges it.

RSS does not separate what is kept from what the allocators hold for later, and it grows with the most that a round has ever
needed. `install` runs in the server, from the file of its tools; `taken` and `taken_at_rest` ask from outside.
"""

import asyncio
import ctypes
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

MIB = 2**20
PATIENCE = 60.0
PAUSE = 1.0  # seconds between two censuses of a server that is not at rest yet
NAMED = 5  # types that are printed
OF_RUNS = ("holodeck.runs.run.Run", "holodeck.runs.log.RunLog")
INSTALL = """
import sys
sys.path.append({root!r})
from tests.store_faults.memory_census import install
install()
"""


@dataclass(frozen=True)
class Census:
    """Sizes in MiB."""

    rss: float
    python_used: float
    python_held: float  # by Python's allocator, with what it has free
    c_used: float
    c_held: float  # by malloc
    in_cycles: dict[str, int]  # objects that only waited for the collector, by type
    objects: dict[str, int]  # all others that the collector knows and that were made after the start

    @property
    def live(self) -> float:
        """What is in use after a collection."""
        return self.python_used + self.c_used

    @property
    def runs(self) -> int:
        """Runs in memory, and logs of runs."""
        return sum(self.objects.get(name, 0) for name in OF_RUNS)

    def since(self, earlier: "Census") -> str:
        """What has changed."""
        grown = {name: number - earlier.objects.get(name, 0) for name, number in self.objects.items()}
        most = [f"{number:+} {name}" for name, number in Counter(grown).most_common(NAMED) if number > 0]
        cycles = [f"{number} {name}" for name, number in Counter(self.in_cycles).most_common(NAMED)]
        return (
            f"RSS {self.rss - earlier.rss:+.1f} MiB, Python uses {self.python_used - earlier.python_used:+.1f} and holds"
            f" {self.python_held - earlier.python_held:+.1f}, C uses {self.c_used - earlier.c_used:+.1f} and holds"
            f" {self.c_held - earlier.c_held:+.1f}; objects: {', '.join(most) or 'none'};"
            f" in cycles: {', '.join(cycles) or 'none'}"
        )


async def taken(folder: Path, process: int) -> Census:
    """Asks a server for its census. The server does nothing else meanwhile, for less than a second."""
    file = folder / f"census-{process}"
    os.kill(process, signal.SIGUSR2)
    async with asyncio.timeout(PATIENCE):
        while not file.exists():
            await asyncio.sleep(0.1)
    found = Census(**json.loads(file.read_text(encoding="utf-8")))
    file.unlink()
    return found


async def taken_at_rest(folder: Path, process: int, seconds: float) -> Census:
    """The census of a server that has nothing to do, as soon as it has no run in memory, or after `seconds`.

    Objects in cycles are those that all its collections have found.
    """
    deadline, in_cycles = time.monotonic() + seconds, Counter[str]()
    while True:
        found = await taken(folder, process)
        in_cycles.update(found.in_cycles)
        if not found.runs or time.monotonic() >= deadline:
            return replace(found, in_cycles=dict(in_cycles))
        await asyncio.sleep(PAUSE)


def install() -> None:
    """In the server: answers SIGUSR2 with a file in the current folder."""
    signal.signal(signal.SIGUSR2, lambda *_: _write())


def _write() -> None:
    name = f"census-{os.getpid()}"
    Path(f"{name}.part").write_text(json.dumps(_counted()), encoding="utf-8")
    Path(f"{name}.part").rename(name)


def _counted() -> dict[str, object]:
    rss = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    in_cycles = _by_type(gc.garbage)
    gc.garbage.clear()
    gc.collect()
    used, held = _of_python()
    c = _of_malloc()
    return {
        "rss": rss,
        "python_used": used,
        "python_held": held,
        "c_used": (c.uordblks + c.hblkhd) / MIB,
        "c_held": (c.arena + c.hblkhd) / MIB,
        "in_cycles": in_cycles,
        "objects": _by_type(gc.get_objects()),
    }


def _by_type(objects: list[object]) -> dict[str, int]:
    return dict(Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects))


def _of_python() -> tuple[float, float]:
    """What Python's allocator has given out and what it holds. It writes both to standard error, from C."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        text = file.read().decode(errors="replace").replace(",", "")
    arenas = re.search(r"(\d+) arenas \* (\d+) bytes/arena", text)
    used = re.search(r"# bytes in allocated blocks\s+=\s+(\d+)", text)
    assert arenas is not None, text[-500:]
    assert used is not None, text[-500:]
    return int(used[1]) / MIB, int(arenas[1]) * int(arenas[2]) / MIB


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
    )


_mallinfo = ctypes.CDLL(None).mallinfo2  # once: each of them stays in memory until a collection
_mallinfo.restype = _MallInfo


def _of_malloc() -> _MallInfo:
    found: _MallInfo = _mallinfo()
    return found
