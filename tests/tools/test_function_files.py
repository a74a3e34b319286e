"""Functions from files below the agent's folder, and every way in which that goes wrong."""

import sys

import pytest

from holodeck.errors import ConfigError
from holodeck.tools.function_files import load_function
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import ToolContext

UNITS = '''
"""Units."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CALLS = []
FACTOR = 1000


@dataclass
class Length:
    value: float
    unit: Literal["m", "km"] = "m"


def convert(length: Length) -> float:
    """Converts to metres."""
    CALLS.append(length)
    return length.value * (FACTOR if length.unit == "km" else 1)


def calls() -> int:
    return len(CALLS)
'''


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "agent"
    (root / "tools").mkdir(parents=True)
    (root / "tools" / "units.py").write_text(UNITS)
    (tmp_path / "outside.py").write_text(UNITS)
    return root


async def test_a_function_of_a_file_is_a_tool(folder):
    before = list(sys.path)
    tool = FunctionTool.of(load_function("tools/units.py", "convert", folder))
    result = await FunctionToolset([tool]).call(
        "convert", {"length": {"value": 2, "unit": "km"}}, ToolContext(user_id="a")
    )
    assert result.text == "2000.0"
    assert tool.schema.description == "Converts to metres."
    assert sys.path == before
    assert "units" not in sys.modules


def test_functions_of_one_file_share_their_module(folder):
    convert, calls = (load_function("tools/units.py", name, folder) for name in ("convert", "calls"))
    assert convert.__globals__ is calls.__globals__


def test_a_file_that_changed_is_loaded_again(folder):
    assert load_function("tools/units.py", "calls", folder)() == 0
    (folder / "tools" / "units.py").write_text("def calls() -> int: return 7  # another one\n")
    assert load_function("tools/units.py", "calls", folder)() == 7


def test_a_folder_reached_through_a_link_is_the_agents_own(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert load_function("tools/units.py", "calls", tmp_path / "link")() == 0


BAD = [
    ("../outside.py", "convert", "../outside.py is outside the agent's folder; move it into the folder"),
    (
        "tools/../../outside.py",
        "convert",
        "tools/../../outside.py is outside the agent's folder; move it into the folder",
    ),
    ("tools/link.py", "convert", "tools/link.py is outside the agent's folder; move it into the folder"),
    ("tools/none.py", "convert", "tools/none.py: there is no such file in the agent's folder"),
    ("tools", "convert", "tools is not a Python file; its name must end in .py"),
    ("tools/units.py", "convrt", "tools/units.py has no function 'convrt'; did you mean convert?"),
    ("tools/units.py", "zzz", "tools/units.py has no function 'zzz'"),
    ("tools/units.py", "FACTOR", "'FACTOR' in tools/units.py is not a function (its type: int)"),
    ("tools/fails.py", "f", "tools/fails.py:3: ZeroDivisionError: division by zero"),
    ("tools/deeper.py", "f", "tools/deeper.py:4: ValueError: from json: line 1 column 1 (char 0)"),
    ("tools/syntax.py", "f", "tools/syntax.py:2: SyntaxError: expected ':'"),
    ("tools/imports.py", "f", "tools/imports.py:1: ModuleNotFoundError: No module named 'no_such_module_here'"),
    ("tools/leaves.py", "f", "tools/leaves.py:2: SystemExit: 3"),
]

FILES = {
    "fails.py": "x = 1\n\nx / 0\n",
    "deeper.py": "import json\ndef load(text):\n    try: json.loads(text)\n    except ValueError as e: raise ValueError('from json: ' + str(e).split(': ')[1]) from e\n\nload('x')\n",
    "syntax.py": "x = 1\ndef f()\n",
    "imports.py": "import no_such_module_here\n",
    "leaves.py": "import sys\nsys.exit(3)\n",
}


@pytest.mark.parametrize(("file", "function", "sentence"), BAD, ids=[each[2] for each in BAD])
def test_what_cannot_be_loaded_is_explained_in_one_line(folder, file, function, sentence):
    for name, code in FILES.items():
        (folder / "tools" / name).write_text(code)
    (folder / "tools" / "link.py").symlink_to(folder.parent / "outside.py")
    with pytest.raises(ConfigError) as caught:
        load_function(file, function, folder)
    assert caught.value.message == sentence
    assert not any(str(getattr(each, "__file__", "")) == str(folder / file) for each in _failed_modules())


def _failed_modules():
    return [
        each
        for name, each in sys.modules.items()
        if name.startswith("_holodeck_tools_") and not hasattr(each, "FACTOR")
    ]


def test_an_absolute_path_outside_is_refused(folder):
    with pytest.raises(ConfigError, match="is outside the agent's folder"):
        load_function(folder.parent / "outside.py", "convert", folder)
