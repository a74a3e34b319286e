"""Each setting is declared once: its default, its bounds, its description."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from holodeck.agent.settings import AgentLoopConfig
from holodeck.config.agent_schema import RunsBlock, ServerBlock
from holodeck.config.build import build_run_settings
from holodeck.config.load import config_of
from holodeck.config.serving import ServeOptions
from holodeck.config.tool_schema import FunctionToolSettings
from holodeck.runs.run_settings import RunSettings
from holodeck.server.options import ServerSettings
from holodeck.server.process import settings_of
from holodeck.tools.functions import FunctionTool

SOURCE = Path(__file__).parents[2] / "src" / "holodeck"
NOTHING_SET = config_of({"name": "a", "model": {"provider": "demo"}}, environment={})


def test_an_empty_file_means_the_defaults_of_the_server():
    found = settings_of(ServeOptions(config=NOTHING_SET))
    most = {"max_connections": found.block.max_connections}  # file descriptors limit it
    assert found == ServerSettings(block=ServerBlock().model_copy(update=most))


def test_an_empty_file_means_the_defaults_of_runs():
    assert build_run_settings(NOTHING_SET) == RunSettings()


def test_a_call_has_the_same_time_in_a_file_and_in_python():
    in_file = FunctionToolSettings(name="x", type="function", file="x.py").timeout
    assert FunctionTool.of(lambda: "", name="x").timeout == in_file < AgentLoopConfig().iteration_timeout


def test_no_key_of_the_server_block_is_copied():
    """A key is declared in the block and used from `ServerSettings.block`."""
    own = {field.name for field in fields(ServerSettings)} - {"push"}  # how hosts are called; which ones: the block
    assert not own & {*ServerBlock.model_fields, *RunsBlock.model_fields}


MOST_SHARED = 2  # names such as `name` or `timeout` occur in many blocks
OUTSIDE = {"wires", "todo", "cli"}  # protocols and a program of their own; the command line's state
SAME_NAMES = {  # two classes that share more names, and why they are two concepts
    ("AgentDefinition", "AgentFile"): "the file describes the parts of an agent, the definition has them built",
    ("AgentConfiguration", "ModelOptions"): "AGT-02 fixes the defaults and bounds of `run_agent`, which has no file",
    ("ClaimNames", "ProxyHeaderSettings"): "the parts of an identity: claims of a token, headers of a proxy",
    ("FunctionToolSettings", "ToolRules"): "a function is one tool: one value, where a server has rules by name",
    ("FunctionToolSettings", "ToolSchema"): "a tool as its author configures it, and as the model is shown it",
}


class Declared(NamedTuple):
    name: str
    bases: frozenset[str]
    fields: frozenset[str]


def declared(path: Path) -> Iterator[Declared]:
    """The classes of a module with the fields that their own bodies declare; inherited ones are declared elsewhere."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            bases = frozenset(base.id for base in node.bases if isinstance(base, ast.Name))
            annotated = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield Declared(node.name, bases, frozenset(each.id for each in annotated if isinstance(each, ast.Name)))


def settings_among(classes: list[Declared]) -> set[str]:
    """Blocks and what inherits from them, and classes that are called settings."""
    found = {each.name for each in classes if each.name.endswith(("Settings", "Limits", "Config", "Configuration"))}
    found.add("Block")
    while more := {each.name for each in classes if each.bases & found} - found:
        found |= more
    return found


def shared(classes: list[Declared]) -> dict[tuple[str, str], set[str]]:
    """Pairs with a settings class in which both declare the same names."""
    settings = settings_among(classes)
    pairs = combinations(sorted(classes, key=lambda each: each.name), 2)
    return {
        (one.name, other.name): set(names)
        for one, other in pairs
        if {one.name, other.name} & settings and len(names := one.fields & other.fields) > MOST_SHARED
    }


def test_no_two_settings_classes_share_their_fields():
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OUTSIDE]
    found = shared([each for path in paths for each in declared(path)])
    unexplained = {pair: names for pair, names in found.items() if pair not in SAME_NAMES}
    assert unexplained == {}, "let one class contain or extend the other"
    assert found.keys() == SAME_NAMES.keys(), "an explanation is no longer needed"


def test_a_copy_of_a_settings_class_is_found(tmp_path):
    path = tmp_path / "copies.py"
    path.write_text(
        "class Retry(Block):\n    attempts: int = 3\n    pause: float = 1\n    factor: float = 2\n"
        "class Slow(Retry):\n    pause: float = 9\n"
        "@dataclass\nclass Again:\n    attempts: int\n    pause: float\n    factor: float\n"
        "class Row:\n    attempts: int\n    pause: float\n"
    )
    assert shared(list(declared(path))) == {("Again", "Retry"): {"attempts", "pause", "factor"}}
