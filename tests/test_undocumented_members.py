"""Every undocumented member of starlette and mcp that HoloDeck uses.

If this fails after an update, read what changed in the named module of the package, then ours that uses it.
"""

import ast
import inspect
import tomllib
from pathlib import Path

import pytest
from mcp.shared import _stream_protocols
from packaging.requirements import Requirement
from packaging.version import Version
from starlette.formparsers import MultiPartParser

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holodeck"
PRIVATE_MODULES = {  # each module with an underscore in its path, the names that we take from it, and where
    "mcp.shared._stream_protocols": ("tools/mcp_sdk.py", {"ReadStream", "WriteStream"}),
}
PINNED = {"starlette", "mcp", "mcp-types"}


def test_starlette_closes_the_files_of_a_form_from_this_list():
    assert "self._files_to_close_on_error" in inspect.getsource(MultiPartParser)
    assert "self._files_to_close_on_error" in (SOURCE / "server" / "uploads.py").read_text()
    assert callable(MultiPartParser.on_end)
    assert inspect.iscoroutinefunction(MultiPartParser.parse)


def test_mcp_has_the_stream_protocols():
    for name in PRIVATE_MODULES["mcp.shared._stream_protocols"][1]:
        assert inspect.isclass(getattr(_stream_protocols, name))
    assert {"receive", "aclose"} <= set(dir(_stream_protocols.ReadStream))
    assert {"send", "aclose"} <= set(dir(_stream_protocols.WriteStream))


def test_each_private_module_that_is_imported_is_named_here():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and "._" in node.module
                and "holodeck" not in node.module
            ):
                where, names = found.setdefault(node.module, (str(path.relative_to(SOURCE)), set()))
                assert where == str(path.relative_to(SOURCE)), f"{node.module} is imported in two modules"
                names.update(alias.name for alias in node.names)
    assert found == PRIVATE_MODULES


@pytest.mark.parametrize("name", sorted(PINNED))
def test_only_one_minor_version_is_allowed(name):
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (need,) = [each for each in map(Requirement, dependencies) if each.name == name]
    lowest = Version(next(each.version for each in need.specifier if each.operator == ">="))
    assert f"{lowest.major}.{lowest.minor}.99" in need.specifier
    assert f"{lowest.major}.{lowest.minor + 1}.0" not in need.specifier
