"""Which worker runs which tests (`pytest -n`): what is long or waits first, and what waits beside what computes.

Usually a file is run as a whole. Folders that share a browser or a database stay together; tests that each start
programs, and share nothing, are given out one by one.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/playground/", "tests/todo/", "tests/clients/", "tests/cluster/")
ONE_BY_ONE = (
    "tests/docs/test_pages.py",
    "tests/cli/test_chat_screen.py",
    "tests/cli/test_chat_stopping.py",
    "tests/server/test_server_process.py",
)
EARLY = (  # in this order; the rest computes and hardly waits, so that no core is idle at the end
    "tests/playground/",
    "tests/files/test_file_hostile.py",
    "tests/server/test_server_process.py",
    "tests/todo/",
    "tests/cluster/",
    "tests/telemetry/",
    "tests/server/test_server_streams.py",
    "tests/cli/",
    "tests/clients/",
    "tests/faults/test_matrix.py",
    "tests/fuzz/",
    "tests/docs/test_pages.py",
    "tests/tools/mcp/",
    "tests/files/",
    "tests/faults/",
    "tests/http/",
    "tests/models/test_model_timeouts.py",
    "tests/models/test_model_faults.py",
    "tests/resilience/",
    "tests/agent/test_run_limits.py",
    "tests/server/test_server_metrics.py",
    "tests/tools/test_tool_breakers.py",
)


def unit_of(nodeid: str) -> str:
    """What is run by one worker, one test after the other."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), nodeid if file in ONE_BY_ONE else file)


def urgency(nodeid: str) -> int:
    """The smaller, the earlier."""
    return next((place for place, start in enumerate(EARLY) if nodeid.startswith(start)), len(EARLY))


class InOurOrder(LoadScopeScheduling):
    """Takes units in the order of the collection, which `urgency` has sorted."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
