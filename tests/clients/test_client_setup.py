"""A client that is not installed: no test of it here, an error in CI."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

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


def test_a_package_that_an_interrupted_install_left_half_written_is_installed_again(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        driving.missing("Node.js")
    package, folder = tmp_path / "package", tmp_path / "folder"
    package.mkdir()
    folder.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "client", "version": "1.0.0"}))
    (package / "index.js").write_text("export default 1")
    with tarfile.open(folder / "client.tgz", "w:gz") as archive:
        archive.add(package, "package")
    (folder / "package.json").write_text(json.dumps({"dependencies": {"client": "file:client.tgz"}}))
    installed = folder / "node_modules" / "client" / "index.js"
    install = [str(driving.ROOT / "tests" / "npm_install.sh"), str(folder)]
    subprocess.run(install, check=True, timeout=driving.SECONDS)
    installed.unlink()
    (folder / "node_modules" / ".package-lock.json").unlink()
    subprocess.run(install, check=True, timeout=driving.SECONDS)
    assert installed.exists()
    (folder / "client.tgz").unlink()  # an install that fails …
    (folder / "package.json").write_text(json.dumps({"dependencies": {"client": "file:client.tgz", "x": "file:x.tgz"}}))
    assert subprocess.run(install, check=False, capture_output=True, timeout=driving.SECONDS).returncode
    assert not (folder / "node_modules" / ".package-lock.json").exists()  # … is not complete
