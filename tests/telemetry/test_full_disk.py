"""A disk that is full costs log lines, and nothing else."""

import os
import resource

import pytest

from holodeck.telemetry.logs import LineWriter
from tests.server.serving import until

LINE = b'{"x": "' + b"x" * 90 + b'"}\n'


def report(count):
    return b'{"dropped": %d}\n' % count


@pytest.mark.req("D10")
def test_a_device_that_is_full_drops_every_line_and_raises_nothing():
    fd = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(fd, bytes, report)
    for _ in range(50):
        writer.put(LINE)
    writer.close(5)
    os.close(fd)
    assert not writer._thread.is_alive()
    assert writer.dropped == 50


@pytest.mark.req("D10")
@pytest.mark.parametrize("room", [250, 200, 198, 0])
async def test_after_the_disk_has_room_again_every_line_is_whole_and_the_lost_are_counted(tmp_path, room):
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = LineWriter(fd, bytes, report)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # a write beyond it fails, like one on a full disk
    try:
        for _ in range(10):
            writer.put(LINE)
        await until(lambda: writer.dropped)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.put(LINE)
    writer.close(5)
    os.close(fd)
    lines = path.read_bytes().splitlines(keepends=True)
    whole = lines.count(LINE)
    assert lines[-1] == report(writer.dropped)
    assert whole == 11 - writer.dropped
    assert len(lines) == whole + 1 + (room % len(LINE) > 0)  # and at most the half line, on a line of its own
