"""Every package that the source imports is declared: what another package happens to bring may be gone tomorrow."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

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
