"""A client that is not installed: no test of it here, an error in CI."""

import json

import pytest

from tests.clients import driving


def test_missing_client_is_skipped_here_and_an_error_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"Node\.js is not installed: run tests/clients/setup\.sh"):
        driving.missing("Node.js")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"Node\.js is not installed"):
        driving.missing("Node.js")


def test_versions_are_exact() -> None:
    for folder in (driving.HERE, driving.HERE / "react"):
        packages = json.loads((folder / "package.json").read_text())["dependencies"]
        assert all(version.rpartition("@")[2][0].isdigit() for version in packages.values())
    lines = (driving.HERE / "requirements.txt").read_text().splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))
