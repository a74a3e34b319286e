"""A package that is not installed, for one test."""

import sys

import pytest


def uninstall(monkeypatch: pytest.MonkeyPatch, package: str, *importers: str) -> None:
    """Makes the import of `package` fail, and forgets the modules of ours that import it: names that begin like `importers`.

    A module is also an attribute of its package, which an import replaces: both are as before when the test is over.
    """
    forgotten = [each for each in sys.modules if each.startswith(importers)]
    for name in forgotten:
        parent, _, child = name.rpartition(".")
        monkeypatch.setattr(sys.modules[parent], child, sys.modules[name])
    for name in forgotten:
        monkeypatch.delitem(sys.modules, name)
    for name in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
