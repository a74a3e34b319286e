"""The bundled agent for `--demo`: a todo list on the offline demo model.

Its list and its conversations are stored in the user's data folder. So a demo leaves nothing in the current folder, and
the list is the same in the terminal and on the server.
"""

import os
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from holodeck.config.environment import data_folder
from holodeck.config.load import LoadedConfig, load_config

DATABASE_VARIABLE, SESSIONS_VARIABLE = "HOLODECK_DEMO_DB", "HOLODECK_DEMO_SESSIONS"


def load_demo(process: Mapping[str, str] = os.environ) -> LoadedConfig:
    file = Path(str(files("holodeck.config") / "demo" / "agent.yaml"))
    folder = _folder(process)
    own = {DATABASE_VARIABLE: str(folder / "demo.sqlite3"), SESSIONS_VARIABLE: str(folder / "demo-sessions.db")}
    return load_config(file, environment={**own, **process})


def _folder(process: Mapping[str, str]) -> Path:
    folder = data_folder(process)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # the demo must also run where the home folder is read-only
        folder = Path(tempfile.gettempdir())
    return folder
