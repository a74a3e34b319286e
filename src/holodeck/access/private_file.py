"""Files that only their owner may read and write: the key file, the cached keys of issuers, saved chats.

A reader sees either the old or the new content, whatever happens to the writer: the content is written beside the file,
flushed to the disk and renamed.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PRIVATE = 0o600
_OTHERS = 0o077


class NotPrivate(Exception):
    """The file exists, but it may not be trusted. The text names the fix."""


class Stamp(NamedTuple):
    """Changes whenever the file is written or replaced."""

    inode: int
    modified: int
    size: int
    mode: int


def stamp_of(path: Path) -> Stamp | None:
    """Returns the stamp, or None if the file does not exist or cannot be inspected."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def read_private(path: Path, max_bytes: int) -> bytes:
    """Reads a file that belongs to us (or root) alone. Follows a symbolic link and checks its target.

    Raises:
        OSError: The file cannot be read.
        NotPrivate: Others may read it, it belongs to another user, or it is not a file or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not make us wait
    with open(descriptor, "rb") as stream:  # noqa: PTH123  it is open already
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivate(f"{path.name} is not a regular file; name another one")
        if found.st_mode & _OTHERS:
            raise NotPrivate(f"{path.name} may be read by other users; run: chmod 600 {path.name}")
        if found.st_uid not in (0, os.geteuid()):
            raise NotPrivate(f"{path.name} belongs to another user; run: chown $USER {path.name}")
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise NotPrivate(f"{path.name} has more than {max_bytes:,} bytes; remove what is not needed")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Replaces the file in one step. Concurrent writers need `locked`."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.new")
    fresh.unlink(missing_ok=True)  # left by a writer that was killed
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123  it is open already
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.rename(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    with _folder(target) as folder:
        os.fsync(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from changing the file. The lock is on its folder, because the file itself is replaced."""
    with _folder(path.resolve()) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
