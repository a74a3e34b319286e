"""Ports that a test may give away before a server listens there.

The system hands out ports from 32768 on to all who ask for any, so one of those, once it is free again, may be another
test's a moment later. These are below, and each process begins at a number of its own.
"""

import os
import socket
from contextlib import closing
from itertools import count

_FIRST, _HOW_MANY = 20_000, 12_000
_next = count(os.getpid() * 101)


def free_port() -> int:
    """A closed port that stays closed unless the test uses it."""
    while True:
        port = _FIRST + next(_next) % _HOW_MANY
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
