"""What a contributor finds beside the code: a workflow, templates, commands that do what they say."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_workflow_runs_on_every_python_on_linux_and_macos():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    unit = workflow["jobs"]["unit"]
    assert unit["strategy"]["matrix"] == {
        "os": ["ubuntu-latest", "macos-latest"],
        "python": ["3.11", "3.12", "3.13", "3.14"],
    }
    assert {"run": "make unit"} in unit["steps"]
    assert {"run": ".ci/run"} in workflow["jobs"]["whole"]["steps"]


@pytest.mark.parametrize(
    "name",
    [
        "CONTRIBUTING.md",
        "AGENTS.md",
        "SECURITY.md",
        ".editorconfig",
        ".pre-commit-config.yaml",
        ".github/pull_request_template.md",
        ".github/ISSUE_TEMPLATE/bug.yml",
        ".github/ISSUE_TEMPLATE/feature_request.yml",
    ],
)
def test_a_contributor_finds(name):
    assert (ROOT / name).read_text().strip()


def test_the_map_for_agents_is_one_page():
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 60


def test_make_unit_needs_no_node_and_no_browser():
    folders = re.search(r"^UNIT := (.*?)\n\n", MAKEFILE, re.MULTILINE | re.DOTALL)[1].replace("\\\n", " ").split()
    assert all((ROOT / folder).exists() for folder in folders)
    assert not {"tests/clients", "tests/playground", "tests/conformance"} & set(folders)
    recipe = re.search(r"^unit: (\S+)", MAKEFILE, re.MULTILINE)[1]
    assert recipe == "$(VENV)/development"  # not `setup`, which installs Node's packages and a browser


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_clean_removes_only_what_make_made(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    made = (
        ".venv/bin/python",
        "dist/a.whl",
        "build/site/a",
        "src/holodeck/__pycache__/a.pyc",
        "tests/clients/node_modules/a",
    )
    kept = (
        "agent.yaml",
        ".env",
        "notes/a.md",
        "src/holodeck/a.py",
        "tests/clients/a.mjs",
        ".holodeck/sessions.db",
        "benchmarks/a.py",
    )
    for name in (*made, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "--silent", "clean"], cwd=tmp_path, check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"Makefile", *kept}
