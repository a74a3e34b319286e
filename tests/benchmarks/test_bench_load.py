"""The harness itself: processes are seen whole, and tokens are counted right on both wires."""

import shutil
import subprocess
import sys
import time

import pytest

from benchmarks.load import LoadResult, Quantiles
from benchmarks.measures import direct_request_ms
from benchmarks.native import fake_model
from benchmarks.processes import cpu_seconds, pss_mib, rss_mib, tree
from benchmarks.report import CannotMeasureError
from benchmarks.systems import TEXT_CONTENT_ARM
from holodeck.core.events import TextAdded, TextStarted
from holodeck.wires.agui.encode import ProtoEncoder

NOTHING = Quantiles(p50=-1, p99=-1, max=-1)


@pytest.fixture
def family():
    """A process with a child; both wait until their input ends."""
    child = "import sys; sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); print(flush=True); {child}"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def test_a_process_is_measured_with_its_children(family):
    assert len(tree(family)) == 2
    assert cpu_seconds(family) >= cpu_seconds(family, alone=True) > 0
    assert rss_mib(family) > rss_mib(family, alone=True) > 1
    assert pss_mib(family) > 1


def test_the_cpu_clock_of_a_process_is_its_own():
    before = time.process_time()
    assert before <= cpu_seconds(0, alone=True) <= time.process_time()


def test_tokens_are_those_within_the_window():
    result = LoadResult(
        ok=1,
        failed=0,
        unfinished=0,
        short_streams=0,
        wall_s=0.4,
        events=4,
        tokens=10,
        first_token_ms=NOTHING,
        completion_ms=NOTHING,
        token_delay_ms=NOTHING,
        started_us=5_000_000,
        first_error="",
        tokens_per_100ms=[1, 2, 3, 4],
    )
    assert result.complete
    assert result.tokens_between(5.15, 5.35) == 5


def test_the_load_client_knows_text_in_protobuf():
    encoder = ProtoEncoder("r1")
    assert encoder.encode(TextAdded("m1", " @0123456789"))[4] == TEXT_CONTENT_ARM
    assert encoder.encode(TextStarted("m1"))[4] != TEXT_CONTENT_ARM


@pytest.mark.skipif(not shutil.which("cc"), reason="the harness is written in C")
def test_the_fake_model_and_the_load_client_agree(tmp_path):
    with fake_model() as port:
        assert direct_request_ms(port, 3, tmp_path).p50 > 0
    with pytest.raises(CannotMeasureError, match="3 requests failed"):
        direct_request_ms(port, 3, tmp_path)
