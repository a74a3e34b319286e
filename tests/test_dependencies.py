"""Every package that the source imports is declared: what another package happens to bring may be gone tomorrow."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
OWN_EXTRAS = ("test", "check", "all")


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [packages for name, packages in project["optional-dependencies"].items() if name not in OWN_EXTRAS]
    lines = [*project["dependencies"], *(line for packages in extras for line in packages)]
    return {_name(re.match(r"[\w.-]+", line)[0]) for line in lines}


def imported() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for package in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"holodeck"}:
                found.setdefault(package, set()).add(path.name)
    return found


def _name(text: str) -> str:
    return text.lower().replace("_", "-").replace(".", "-")


def test_every_imported_package_is_declared():
    distributions = packages_distributions()
    missing = {
        package: sorted(files)
        for package, files in imported().items()
        if not {_name(each) for each in distributions.get(package, [package])} & declared()
    }
    assert missing == {}


def installed_with(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """What installing a package brings, itself included."""
    found, waiting = set(), [(name, extras)]
    while waiting:
        package, wanted = waiting.pop()
        if (key := _name(package)) in found and not wanted:
            continue
        found.add(key)
        for line in requires(package) or ():
            need = Requirement(line)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                waiting += [(need.name, tuple(need.extras))] if _name(need.name) not in found else []
    return found


def test_the_core_installation_is_small_and_has_nothing_of_the_extras():
    core = installed_with("holodeck-agents")
    assert len(core) < 50
    assert not core & {
        "botocore",
        "google-auth",
        "requests",
        "sqlalchemy",
        "sqlmodel",
        "parsedatetime",
        "onnxruntime",
        "redis",
        "psycopg",
    }


def test_the_clouds_are_extras():
    assert {"botocore", "jmespath"} <= installed_with("holodeck-agents", ("bedrock",))
    assert {"google-auth", "cryptography", "requests"} <= installed_with("holodeck-agents", ("vertex",))
