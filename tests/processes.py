"""The programs that a test started: other tests may keep a browser or a server, which starts what it likes."""

import psutil


class NewChildren:
    def __init__(self) -> None:
        self._before = set(psutil.Process().children())

    def now(self) -> list[psutil.Process]:
        """Our children that were not there before, and theirs."""
        found = []
        for child in set(psutil.Process().children()) - self._before:
            try:
                found += [child, *child.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue  # it ended while we looked
        return found
