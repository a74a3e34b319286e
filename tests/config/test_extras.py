"""What needs an extra, and the message without it."""

import importlib.util
import sys

import pytest

from holodeck.config import build
from holodeck.config.build_stores import build_stores
from holodeck.config.load import load_config
from holodeck.errors import StartError
from holodeck.todo import database
from tests.config.missing_packages import uninstall


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


@pytest.mark.parametrize(("package", "extra"), [("psycopg", "postgres"), ("redis", "cluster")])
def test_a_shared_store_names_its_extra(tmp_path, monkeypatch, package, extra):
    file = tmp_path / "agent.yaml"
    shared = "sessions: {store: postgres, url: 'postgresql://h/d'}\ncluster: {valkey: 'valkey://h:6379'}\n"
    file.write_text("name: a\nmodel: {provider: demo}\n" + shared)
    uninstall(monkeypatch, package, "holodeck.stores.postgres_", "holodeck.stores.valkey_")
    with pytest.raises(StartError, match=rf"pip install 'holodeck-agents\[{extra}\]'"):
        build_stores(load_config(file))
