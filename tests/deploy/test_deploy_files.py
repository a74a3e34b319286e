"""What deploy/ names exists: metrics, routes, variables, settings. A renamed metric must not silence an alert."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.server.serving import served

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
YAML_FILES = sorted(DEPLOY.rglob("*.yaml"))
_METRIC = re.compile(r"\b(?:holodeck|process)_[a-z_]+\b")


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())
    panels = json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]
    from_rules = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return from_rules + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_every_yaml_file_reads(file: Path) -> None:
    assert all(isinstance(each, dict) for each in yaml.safe_load_all(file.read_text()))


async def test_alerts_and_dashboard_ask_only_for_metrics_that_there_are() -> None:
    async with served() as s, s.client.get(f"{s.url}/metrics") as page:
        offered = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", await page.text(), re.MULTILINE))
    wanted = {name.removesuffix("_bucket") for each in expressions() for name in _METRIC.findall(each)}
    assert len(wanted) > 10
    assert wanted <= offered


@pytest.mark.req("USE-05")
async def test_probes_ask_for_routes_that_answer() -> None:
    probes = set(
        re.findall(r"(?:path: |/)(health|ready|/health|/ready)\b", (DEPLOY / "kubernetes/holodeck.yaml").read_text())
    )
    assert probes
    async with served() as s:
        for path in ("/health", "/ready"):
            async with s.client.get(s.url + path) as answer:
                assert answer.status == 200


@pytest.mark.req("USE-05")
def test_containers_run_without_rights() -> None:
    (pods, _service) = yaml.safe_load_all((DEPLOY / "kubernetes/holodeck.yaml").read_text())
    spec = pods["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001$", image, re.MULTILINE)
    assert image.index("\nUSER ") < image.index("\nENTRYPOINT ")


def test_the_image_installs_every_extra() -> None:
    """Which of them an agent needs is written in its file, which the image does not know."""
    assert '".[all]"' in (DEPLOY / "Dockerfile").read_text()
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for_users = set(extras) - {"all", "docs", "test", "check", "postgres", "valkey"}
    assert extras["all"] == [f"holodeck-agents[{','.join(sorted(for_users))}]"]
    assert extras["cluster"] == ["holodeck-agents[postgres,valkey]"]


def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / command
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = run("hadolint", str(DEPLOY / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    done = run("kubernetes-validate", "--strict", str(DEPLOY / "kubernetes/holodeck.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == 2


def test_a_project_of_holodeck_init_runs_where_its_folder_is_read_only() -> None:
    """Its todo server writes to TODO_DB, which image and unit set to a folder that may be written."""
    project = DEPLOY.parent / "src/holodeck/cli/project/agent.yaml"
    assert 'args: [--db, "${TODO_DB:-todo.sqlite3}"]' in project.read_text()
    assert "TODO_DB=/data/todo.sqlite3 " in (DEPLOY / "Dockerfile").read_text()
    assert "Environment=TODO_DB=/var/lib/holodeck/todo.sqlite3\n" in (DEPLOY / "holodeck.service").read_text()
