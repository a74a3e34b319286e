"""What `pip install .` brings: packages and bytes, in a fresh virtual environment with the project's constraints."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target

PROJECT = Path(__file__).parent.parent
INSTALLERS = ("pip", "setuptools")  # of the environment itself, not ours


def new_environment(folder: Path) -> Path:
    """The Python of a fresh virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> str:
    """Runs pip with the whole environment: it may need its own settings to reach packages."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT, env=os.environ)
    if done.returncode:
        raise CannotMeasureError(f"pip {arguments[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return done.stdout


def packages(python: Path) -> dict[str, str]:
    """Names and versions of what is installed."""
    installed = json.loads(pip(python, "list", "--format", "json"))
    return {each["name"]: each["version"] for each in installed if each["name"] not in INSTALLERS}


def size_mib(python: Path) -> float:
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    ours = (folder for folder in site.iterdir() if folder.name.partition("-")[0] not in INSTALLERS)
    files = (file for folder in ours for file in ([folder] if folder.is_file() else folder.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def run(options: Options) -> list[Row]:
    python = new_environment(options.scratch / "venv")
    pip(python, "install", "--quiet", "--constraint", "constraints.txt", ".")
    count = len(packages(python))
    return [
        Row(measure="packages", system="pip install .", unit="", samples=[count], target=Target(limit=60)),
        Row(measure="size on disk", system="pip install .", unit="MiB", samples=[size_mib(python)]),
    ]
