"""Our children that were not there before: other tests may keep servers running."""

import psutil


class NewChildren:
    def __init__(self) -> None:
        self._before = {process.pid for process in self._all()}

    def now(self) -> list[psutil.Process]:
        return [process for process in self._all() if process.pid not in self._before]

    @staticmethod
    def _all() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)
