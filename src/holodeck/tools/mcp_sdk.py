"""The streamable HTTP client of the official `mcp` package, without its server half.

`import mcp` runs the package's `__init__`, which loads the server, its web framework and the command line with it: 0.3 to
0.4 s of CPU at the start (0.59 to 0.69 instead of 0.28) and memory that an agent has no use for. Python runs a package's `__init__` before
any of its modules, so this module puts `mcp` and `mcp.client` in place first, not yet run. The first access to a missing
name runs the package's `__init__`: other code in the process can import `mcp` as usual, with the same module
objects and the same classes.

Only `holodeck.tools.mcp_http` and `mcp_sse` import this module: agents with local tools do not need the SDK.
"""

import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_running = threading.RLock()
_begun: set[ModuleType] = set()


class _NotYetRun(ModuleType):
    """A package whose `__init__` runs at the first access to a name that it does not have."""

    def __getattr__(self, name: str) -> Any:
        with _running:
            attributes = vars(self)
            if name in attributes:  # another thread was faster
                return attributes[name]
            if self in _begun:  # its own __init__ looks for a submodule
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
            _begun.add(self)
            _run(self)
            return getattr(self, name)


def _run(package: ModuleType) -> None:
    if package.__spec__ is None or package.__spec__.loader is None:
        raise ImportError(f"{package.__name__} cannot be loaded", name=package.__name__)
    package.__spec__.loader.exec_module(package)
    package.__class__ = ModuleType


def _defer(name: str) -> None:
    """Registers a package without executing it, unless it is imported already."""
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _NotYetRun
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


_defer("mcp")
_defer("mcp.client")

from mcp.client.sse import sse_client  # noqa: E402  after _defer, or all of it would load
from mcp.client.streamable_http import streamable_http_client  # noqa: E402  after _defer, or all of it would load
from mcp.shared._stream_protocols import ReadStream, WriteStream  # noqa: E402  as above
from mcp.shared.message import ClientMessageMetadata, SessionMessage  # noqa: E402  as above
from mcp_types import jsonrpc_message_adapter  # noqa: E402  as above

__all__ = [
    "ClientMessageMetadata",
    "ReadStream",
    "SessionMessage",
    "WriteStream",
    "jsonrpc_message_adapter",
    "sse_client",
    "streamable_http_client",
]
