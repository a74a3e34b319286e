"""Which worker runs which tests (`pytest -n`): long work first, so that no worker is left with it at the end.

Usually a file is run as a whole. Folders that share a browser or a database stay together; tests that each start
programs, and share nothing, are given out one by one.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/playground/", "tests/todo/", "tests/clients/")
ONE_BY_ONE = (
    "tests/docs/test_pages.py",
    "tests/cli/test_chat_screen.py",
    "tests/cli/test_chat_stopping.py",
    "tests/server/test_server_process.py",
)
LONGEST = (  # in this order; what is missing here takes less than the last
    "tests/playground/",
    "tests/files/test_file_hostile.py",
    "tests/todo/",
    "tests/clients/",
    "tests/faults/test_matrix.py",
    "tests/fuzz/test_openapi_fuzz.py",
    "tests/docs/test_pages.py",
    "tests/cli/",
    "tests/server/test_server_process.py",
    "tests/tools/mcp/",
    "tests/files/",
    "tests/telemetry/test_otel.py",
)


def unit_of(nodeid: str) -> str:
    """What is run by one worker, one test after the other."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), nodeid if file in ONE_BY_ONE else file)


def urgency(nodeid: str) -> int:
    """The smaller, the earlier."""
    return next((place for place, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))


class LongestFirst(LoadScopeScheduling):
    """Takes units in the order of the collection, which `urgency` has sorted."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
