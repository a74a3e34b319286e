"""The server half of the official SDK without the rest of it, for a process that is a server and nothing else.

`import mcp` loads its client, its command line and a second server framework, and builds hundreds of pydantic models of
which a server uses a few: 0.35 s of CPU at each start (0.82 instead of 0.49), half for each of the two. Python runs a
package's `__init__` before any of its modules, so the packages are put into `sys.modules` first without being run; the models are
built when they are first used. Both change the process, so only `holodeck.todo.__main__` uses this module: a program that
imports the todo server gets the SDK as it is.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import cast

from pydantic import BaseModel, ConfigDict

_PACKAGES = ("mcp", "mcp.server")


@contextmanager
def lean_imports(*hidden: str) -> Iterator[None]:
    """Imports in the block skip parts of their packages that we do not use, and build pydantic models on first use.

    To code in the block, the hidden packages are not installed: the SDK works without them.
    """
    for name in _PACKAGES:
        _put_in_place(name)
    hiding = [name for name in hidden if name not in sys.modules]
    for name in hiding:
        sys.modules[name] = cast("ModuleType", None)  # Python's documented way to say so
    usual = BaseModel.model_config
    BaseModel.model_config = ConfigDict(defer_build=True)
    try:
        yield
    finally:
        BaseModel.model_config = usual
        for name in hiding:
            del sys.modules[name]


def _put_in_place(name: str) -> None:
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    package = sys.modules[name] = module_from_spec(spec)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
