"""Logs of the servers under test are discarded; a test that wants them brings its own place."""

import os

import pytest

from holodeck.telemetry import logs


@pytest.fixture(autouse=True)
def quiet_logs():
    fd = os.open(os.devnull, os.O_WRONLY)
    output = logs.configure(fd=fd)
    yield
    output.close()
    os.close(fd)
