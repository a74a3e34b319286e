"""`holodeck init`: writes a project that runs immediately, on the demo model and with its own tool."""

import shlex
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import click

from holodeck.errors import ConfigError

TEMPLATE = {  # bundled name → name in the project
    "agent.yaml": "agent.yaml",
    "example.py.template": "tools/example.py",  # no module of ours, so no .py
    "env.example": ".env.example",
    "gitignore": ".gitignore",
    "README.md": "README.md",
}


@click.command("init")
@click.argument("folder", required=False, default=".", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> None:
    """Create a project that is ready to run.

    FOLDER is created if it does not exist. Existing files are not overwritten.
    """
    existing = [name for name in TEMPLATE.values() if (folder / name).exists()]
    if existing:
        command = f"holodeck init {shlex.quote(str(_free(folder)))}"
        raise ConfigError(f"{folder / existing[0]} exists; choose another folder, e.g. {command}")
    for source, target in TEMPLATE.items():
        _write(folder / target, source, folder.resolve().name)
        click.echo(f"wrote {folder / target}")
    step = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    click.echo(f"\nNext:  {step}holodeck chat\n       {step}holodeck serve --open")
    if find_spec("sqlmodel") is None:
        click.echo('\nThe todo list of this example needs: pip install "holodeck-agents[demo]"')


def _free(folder: Path) -> Path:
    """Returns a folder that does not exist, named after the one that does."""
    name = "my-agent" if folder == Path() else str(folder)
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next((path for path in map(Path, names) if not path.exists()), Path("another-folder"))


def _write(target: Path, source: str, project: str) -> None:
    text = (files("holodeck.cli") / "project" / source).read_text(encoding="utf-8")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("@NAME@", _agent_name(project)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from error


def _agent_name(project: str) -> str:
    """Turns the folder's name into an agent's name: in YAML, 2024 and true are not text."""
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in project.lower()).strip("-")[:90]
    if not name:
        return "my-agent"
    return f"agent-{name}" if name[0].isdigit() or name in ("true", "false", "null") else name
