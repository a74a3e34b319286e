"""A system call filter: no sockets, no other programs, no child processes, no access to other processes.

It closes what Landlock leaves open: UDP, and starting programs. Refused calls fail with EPERM, so that a library that
merely probes continues. Two architectures are known; on others there is no filter.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF instructions
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data (little-endian)
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # a second numbering of x86-64


class _Calls(NamedTuple):
    """Numbers of system calls. `clone3` hides its flags in memory: it "does not exist", and libc falls back to clone."""

    arch: int
    refused: tuple[int, ...]
    clone: int
    clone3: int


_KNOWN = {
    "x86_64": _Calls(
        arch=0xC000003E,
        # socket socketpair fork vfork execve ptrace process_vm_readv/writev io_uring_setup execveat bpf unshare setns
        # mount keyctl add_key perf_event_open userfaultfd kill tkill(own threads use tgkill) pidfd_getfd
        refused=(41, 53, 57, 58, 59, 101, 310, 311, 425, 322, 321, 272, 308, 165, 250, 248, 298, 323, 62, 200, 438),
        clone=56,
        clone3=435,
    ),
    "aarch64": _Calls(
        arch=0xC00000B7,
        refused=(198, 199, 221, 117, 270, 271, 425, 281, 280, 97, 268, 40, 219, 217, 241, 282, 129, 130, 438),
        clone=220,
        clone3=435,
    ),
}


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _filter(calls: _Calls) -> Iterator[tuple[int, int, int, int]]:
    """Yields (code, skip if true, skip if false, operand), each test followed by its verdict."""
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    yield _LOAD, 0, 0, _ARCH
    yield _JUMP_EQUAL, 1, 0, calls.arch
    yield refuse
    yield _LOAD, 0, 0, _NUMBER
    yield _JUMP_SET, 0, 1, _X32
    yield refuse
    for number in calls.refused:
        yield _JUMP_EQUAL, 0, 1, number
        yield refuse
    yield _JUMP_EQUAL, 0, 1, calls.clone3
    yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS
    yield _JUMP_EQUAL, 0, 3, calls.clone
    yield _LOAD, 0, 0, _FIRST_ARGUMENT
    yield _JUMP_SET, 1, 0, _CLONE_THREAD
    yield refuse
    yield _RETURN, 0, 0, _ALLOW


def refuse_calls(libc: ctypes.CDLL) -> bool:
    """Installs the filter. Returns whether it is in place. `no_new_privs` must be set before."""
    calls = _KNOWN.get(os.uname().machine)
    if calls is None:
        return False
    lines = [_Instruction(*line) for line in _filter(calls)]
    program = _Program(len(lines), (_Instruction * len(lines))(*lines))
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0)
