"""What needs an extra, and the message without it."""

import importlib.util
import sys

import pytest

from holodeck.config import build
from holodeck.config.load import load_config
from holodeck.todo import database


def test_the_demo_model_needs_no_extra(tmp_path, monkeypatch):
    file = tmp_path / "agent.yaml"
    file.write_text("name: a\nmodel: {provider: demo}\ninstructions: Hi.\n")
    for name in ("sqlmodel", "sqlalchemy"):
        monkeypatch.setitem(sys.modules, name, None)
    assert build.build_agent(load_config(file)).model.name == "demo"


def test_the_todo_server_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(database.DatabaseError, match=r"pip install 'holodeck-agents\[demo\]'"):
        database.check_database(f"sqlite:///{tmp_path}/todo.sqlite3")
