"""What is published: the wheel has every file of the package, and what the Makefile runs exists."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.req("USE-01")
def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if not name.split("/")[0].endswith(".dist-info")}
    source = ROOT / "src"
    files = {str(file.relative_to(source)) for file in source.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    assert inside == {name for name in files if not name.split("/")[0].endswith(".egg-info")}
    assert "holodeck/py.typed" in inside


def test_every_module_that_the_makefile_runs_exists() -> None:
    """`make dist` once named a folder that .gitignore kept out of the repository."""
    modules = re.findall(r"python -m ((?:tests|benchmarks)[\w.]*)", (ROOT / "Makefile").read_text())
    assert len(modules) > 5
    assert [name for name in modules if find_spec(name) is None] == []


def test_every_extra_for_users_is_in_the_quickstart() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(set(extras) - {"docs", "test", "check"})
