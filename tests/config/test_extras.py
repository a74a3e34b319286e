"""What is missing without an extra is named with the line that installs it."""

import importlib.util

import pytest

from holodeck.config import build, build_model
from holodeck.config.load import load_config
from holodeck.errors import StartError
from holodeck.todo import database


def test_the_demo_model_names_its_extra(tmp_path, monkeypatch):
    file = tmp_path / "agent.yaml"
    file.write_text("name: a\nmodel: {provider: demo}\ninstructions: Hi.\n")
    monkeypatch.setattr(build_model, "find_spec", lambda name: None)
    with pytest.raises(StartError, match=r"pip install 'holodeck-agents\[demo\]'"):
        build.build_agent(load_config(file))


def test_the_todo_server_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(database.DatabaseError, match=r"pip install 'holodeck-agents\[demo\]'"):
        database.check_database(f"sqlite:///{tmp_path}/todo.sqlite3")
