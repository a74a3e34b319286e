"""The sandbox of the worker, entered before it reads a document: limits of time, memory, files, network, children.

The worker itself calls this, when it has one thread and has read its input: doing this between fork and exec
(`preexec_fn`) can deadlock a server with threads. If the kernel lacks one layer, the others still hold. The worker
reports the layers in effect, and the server logs them.
"""

import contextlib
import ctypes
import os
import resource
import signal
import site
import sys
import sysconfig
from types import FrameType

from holodeck.files import landlock, seccomp

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38  # linux/prctl.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
MAX_OPEN_FILES = 64
LAST_WORDS = 2  # seconds of CPU to send what has been read so far
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
NUMERIC_LIBRARIES = ("/dev/null", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")


class OutOfTime(BaseException):
    """Not an Exception: parsers catch those."""


def enter(*, parent: int, memory: int, cpu: int, wall: float) -> list[str]:
    """Enters the sandbox. Returns the layers in effect besides the limits."""
    in_place = _leave_system(parent) if sys.platform == "linux" else []
    _limit(memory, cpu)
    for number in (signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, wall)
    return in_place


def leave_alarms() -> None:
    """Turns off the alarms while the text is written out: from here on only the hard limits count."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _limit(memory: int, cpu: int) -> None:
    limits = {
        "RLIMIT_AS": (memory, memory),
        "RLIMIT_CPU": (cpu, cpu + LAST_WORDS),
        "RLIMIT_FSIZE": (0, 0),
        "RLIMIT_NOFILE": (MAX_OPEN_FILES, MAX_OPEN_FILES),
        "RLIMIT_CORE": (0, 0),
    }
    for name, pair in limits.items():
        with contextlib.suppress(ValueError, OSError):  # not every system knows every limit, or allows lowering it
            resource.setrlimit(getattr(resource, name), pair)


def _leave_system(parent: int) -> list[str]:
    libc = ctypes.CDLL(None, use_errno=True)
    in_place = []
    if libc.unshare(_CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0:
        in_place.append("no-network")
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after unshare: new credentials would clear it
    if os.getppid() != parent:  # the parent ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if landlock.allow_only_reading(libc, _readable()):
        in_place.append("landlock")
    if seccomp.refuse_calls(libc):
        in_place.append("seccomp")
    return in_place


def _readable() -> set[str]:
    """Returns the folders of Python, its packages and the system's libraries: nothing of a user's."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  see landlock.py
    paths = sysconfig.get_paths()
    python = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    user = {site.getusersitepackages()} if site.ENABLE_USER_SITE else set()
    return {own, f"{sys.base_prefix}/lib", *python, *user, *SYSTEM_LIBRARIES, *NUMERIC_LIBRARIES}
