"""`make dist`: wheel and sdist, built twice and equal, then the wheel tried as a user installs it.

Two environments: one without extras, whose packages are counted, and one with `demo`, in which every command that a newcomer types
first is run from an empty folder. Nothing of the repository is on their path.
"""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

from tests.docs.snippets import PAGES, snippets

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
MOST_PACKAGES = 50
SECONDS = 300
PROGRAM = """
import holodeck
from holodeck.testing import ScriptedModel, says
agent = holodeck.Agent(ScriptedModel([says("from Python")]))
print(agent.ask_sync("hi").text)
agent.close_sync()
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheel = _build_twice(folder)
        _count_packages(_install(folder / "core", wheel, ""))
        environment = _install(folder / "demo", wheel, "[demo]")
        home = folder / "home"
        home.mkdir()
        _try_commands(environment, home)
        _try_server(environment, home)
        _check_types(environment, folder / "examples")
    _report(f"{DIST.name}/: {', '.join(sorted(file.name for file in DIST.iterdir()))}")


def _build_twice(folder: Path) -> Path:
    sums = []
    for target in (DIST, folder / "again"):
        for old in target.glob("holodeck_agents-*"):
            old.unlink()
        _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), "."], ROOT)
        files = sorted(target.glob("holodeck_agents-*"))
        sums.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    _require(sums[0] == sums[1] and len(sums[0]) == 2, f"two builds differ: {sums}")
    _report("built twice: wheel and sdist are the same, byte for byte")
    return next(DIST.glob("*.whl"))


def _install(folder: Path, wheel: Path, extras: str) -> Path:
    """The folder with the commands of a new environment that has nothing but the wheel."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}{extras}"], folder)
    return folder / "bin"


def _count_packages(commands: Path) -> None:
    count = len(json.loads(_run([str(commands / "python"), "-m", "pip", "list", "--format", "json"], commands))) - 2
    _require(count <= MOST_PACKAGES, f"the core needs {count} packages, more than {MOST_PACKAGES}")
    _report(f"core: {count} packages")


def _try_commands(commands: Path, home: Path) -> None:
    holodeck = str(commands / "holodeck")
    _shows([holodeck, "--version"], home, r"^holodeck \d+\.\d+\.\d+")
    _shows([holodeck, "init", "first"], home, "agent.yaml")
    _shows([holodeck, "check", "first"], home, "convert")
    _shows([holodeck, "call", "-f", "first", "convert", "value=5", "to=kilometres"], home, r"8\.0")
    _shows([holodeck, "chat", "--demo", "add buy milk"], home, "Added .*Buy milk")
    _shows([str(commands / "holodeck-todo"), "--help"], home, "--db")
    _shows([str(commands / "python"), "-c", PROGRAM], home, "from Python")


def _try_server(commands: Path, home: Path) -> None:
    command = [str(commands / "holodeck"), "serve", "--demo", "--port", "0"]
    server = subprocess.Popen(command, cwd=home, env=_environment(home), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        started = json.loads(next(line for line in server.stdout if "server_started" in line))
        address = started["details"]["address"]
        for path, expected in (("/health", b"healthy"), ("/", b"<!doctype html>"), ("/openapi.json", b"openapi")):
            request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": "text/html, */*"})
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                _require(expected in answer.read().lower(), f"{path} does not answer with {expected!r}")
    finally:
        server.terminate()
        _, _ = server.communicate(timeout=SECONDS)
    _require(server.returncode == 0, f"the server ended with {server.returncode}")
    _report("holodeck serve --demo: health, playground, OpenAPI, ends with 0")


def _check_types(commands: Path, folder: Path) -> None:
    """The programs of the documentation pass mypy --strict, as a user of the wheel runs it; those for other libraries are left out."""
    folder.mkdir()
    known = {*sys.stdlib_module_names, "holodeck", "pydantic", "starlette", "mcp"}
    for page in PAGES:
        for each in snippets(page):
            if each.language == "python" and _imports(each.text) <= known:
                (folder / f"{page.stem.replace('-', '_')}_{each.line}.py").write_text(each.text)
    files = sorted(file.name for file in folder.iterdir())
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(commands / "python"), *files]
    _run(mypy, folder)
    _report(f"mypy --strict: {len(files)} programs of the documentation")


def _imports(program: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(program)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def _shows(command: list[str], folder: Path, pattern: str) -> None:
    printed = _run(command, folder, _environment(folder))
    _require(re.search(pattern, printed), f"{command} printed no {pattern!r}:\n{printed}")
    _report(" ".join([Path(command[0]).name, *(part for part in command[1:] if "\n" not in part)]))


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    _require(done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _environment(home: Path) -> dict[str, str]:
    """A new user's: no settings of this project, no agents, no keys."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}


def _report(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the command's answer


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        sys.exit(f"make dist: {otherwise}")


if __name__ == "__main__":
    main()
