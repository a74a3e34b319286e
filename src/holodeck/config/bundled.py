"""The agent that comes with HoloDeck: a todo list on the offline demo model, for `--demo`.

Its list is kept in the user's data folder, so that a demo leaves nothing in the folder it was started in and the list
is the same in the terminal and on the server.
"""

import os
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from holodeck.config.load import LoadedConfig, load_config

DATABASE_VARIABLE = "HOLODECK_DEMO_DB"


def load_demo(process: Mapping[str, str] = os.environ) -> LoadedConfig:
    file = Path(str(files("holodeck.config") / "demo" / "agent.yaml"))
    return load_config(file, environment={DATABASE_VARIABLE: str(_database(process)), **process})


def _database(process: Mapping[str, str]) -> Path:
    base = process.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    folder = Path(base) / "holodeck"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # the demo must also run where the home folder is read-only
        folder = Path(tempfile.gettempdir())
    return folder / "demo.sqlite3"
