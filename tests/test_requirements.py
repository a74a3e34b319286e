"""Requirements and tests, checked both ways: none without a test, and no test for one that is not listed."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.requirements import BY_ID, REQUIREMENTS

TESTS = Path(__file__).parent


@cache
def named_ids() -> dict[str, list[str]]:
    """Requirement ids in `pytest.mark.req(...)` and in `req=` of parametrised tables, with where they stand."""
    found = defaultdict(list)
    for path in TESTS.rglob("*.py"):
        if "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        found[argument.value].append(f"{path.relative_to(TESTS)}:{node.lineno}")
    return found


def scenario_tests() -> list[tuple[Path, ast.AsyncFunctionDef | ast.FunctionDef]]:
    return [
        (path, node)
        for path in (TESTS / "scenarios").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_delivered_requirement_is_shown_by_a_test():
    named = named_ids()
    missing = [
        requirement.id for requirement in REQUIREMENTS if requirement.due is None and requirement.id not in named
    ]
    assert missing == []


def test_every_id_that_a_test_names_is_a_requirement():
    unknown = {id_: where for id_, where in named_ids().items() if id_ not in BY_ID}
    assert unknown == {}


def test_every_scenario_names_what_it_shows():
    silent = [
        f"{path.name}:{node.lineno}"
        for path, node in scenario_tests()
        if not any("req" in ast.dump(decorator) for decorator in node.decorator_list)
    ]
    assert silent == []


def test_ids_are_unique():
    assert len(BY_ID) == len(REQUIREMENTS)
