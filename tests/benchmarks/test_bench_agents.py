"""Every agent file that a benchmark writes is one that the server accepts. No test here measures time."""

import subprocess
import sys

from benchmarks.added import agent_folder, secured
from benchmarks.http_servers import strict_agent
from benchmarks.options import Options
from benchmarks.processes import SOURCES, environment
from benchmarks.stores import DATABASE, MEMORY, SQLITE, UNFLUSHED, systems, workers
from benchmarks.systems import HOLODECK
from holodeck.config.load import load_config

DATABASE_URL, CACHE_URL = "postgresql://bench@127.0.0.1:5432/bench", "redis://127.0.0.1:6379/0"
ENVIRONMENT = {"BENCH_MODEL_URL": "http://127.0.0.1:1/v1", "BENCH_SESSIONS": "new/sessions.db"}


def agent_of(system):
    return load_config(system.cwd, environment=ENVIRONMENT).agent


def test_the_agents_on_each_store_differ_in_their_store_only(tmp_path):
    agents = {
        name: agent_of(each) for name, each in systems(Options(scratch=tmp_path), DATABASE_URL, CACHE_URL).items()
    }
    stores = {name: agent.sessions.store for name, agent in agents.items()}
    assert stores == {
        MEMORY: "memory",
        SQLITE: None,
        UNFLUSHED: None,
        DATABASE: "postgres",
    }  # None: the default, a file
    assert agents[SQLITE].sessions.path == ENVIRONMENT["BENCH_SESSIONS"]
    assert agents[UNFLUSHED].sessions == agents[SQLITE].sessions.model_copy(update={"durability": "process"})
    assert agents[DATABASE].cluster.valkey.get_secret_value() == CACHE_URL
    assert all(agent.server == agents[MEMORY].server for agent in agents.values())


def test_the_agents_of_one_and_of_two_workers_are_the_same(tmp_path):
    one, two = (workers(Options(scratch=tmp_path), count) for count in (1, 2))
    assert agent_of(one) == agent_of(two)
    assert two.argv == (*one.argv, "--workers", "2")


def test_the_agent_behind_keys_is_the_open_one_with_keys(tmp_path):
    options = Options(scratch=tmp_path)
    behind_keys = agent_of(secured(options, "secured"))
    open_to_all = load_config(agent_folder(options, "open"), environment=ENVIRONMENT).agent
    assert behind_keys.server.auth.api_key.file == "keys.json"
    assert open_to_all.server.auth.api_key is None
    assert behind_keys.server.runs == open_to_all.server.runs


def test_the_agent_behind_each_http_server_has_the_limits_of_the_faults(tmp_path):
    server = load_config(strict_agent(Options(scratch=tmp_path)), environment=ENVIRONMENT).agent.server
    assert (server.limits.request.head_seconds, server.limits.request.max_body_mb) == (1, 1)
    assert server.runs.stall_timeout == 2


def test_the_server_under_test_is_the_one_beside_the_benchmarks(tmp_path):
    """The interpreter may have HoloDeck installed from another checkout; an earlier version has its own interpreter."""
    where = "import holodeck; print(holodeck.__file__)"
    env = environment(HOLODECK.argv)
    found = subprocess.run((sys.executable, "-c", where), cwd=tmp_path, env=env, capture_output=True, check=True)
    assert found.stdout.decode().startswith(SOURCES)
    assert "PYTHONPATH" not in environment(("/venv/bin/python", *HOLODECK.argv[1:]))
