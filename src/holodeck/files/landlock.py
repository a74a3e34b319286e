"""Landlock: lets a process give up the file system and the network, without being root.

It asks the kernel which rights it knows (the ABI) and gives up all of them. Linux 5.13 and newer; UDP is not covered.
Documentation: kernel.org, userspace-api/landlock.
"""

import ctypes
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_ASK_VERSION = 1
_PATH_BENEATH = 1
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # ABI → how many rights on files it knows
_NET_ABI, _SCOPE_ABI = 4, 6
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # no abstract sockets of, and no signals to, processes outside the sandbox
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def allow_only_reading(libc: ctypes.CDLL, folders: Iterable[str]) -> int:
    """Restricts this process to reading below these folders. Returns the ABI, 0 if there is none.

    `no_new_privs` must be set before.
    """
    version = max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))
    if not version:
        return 0
    rights = max(count for known, count in _FILE_RIGHTS.items() if known <= version)
    rules = _Ruleset(
        files=(1 << rights) - 1,
        net=_TCP if version >= _NET_ABI else 0,
        scoped=_SCOPES if version >= _SCOPE_ABI else 0,
    )
    size = ctypes.c_size_t(8 if version < _NET_ABI else 16 if version < _SCOPE_ABI else 24)
    ruleset = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0))
    try:
        for folder in folders:
            _allow(libc, ruleset, folder)
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return version


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):  # not every machine has, or shows, every folder
        return
    try:
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112  pathlib would make the worker's start longer
        rule = _PathRule(allowed=rights, parent=parent)
        _checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(parent)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
