"""Identifiers that we mint, and which ones from outside are accepted."""

import re
import subprocess
import sys
import time
import uuid

import pytest

from holodeck.core.ids import (
    is_request_id,
    is_ulid,
    is_valid_id,
    new_call_id,
    new_message_id,
    new_request_id,
    new_ulid,
)

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.req("SRV-15")
def test_ulids_are_well_formed_and_different():
    made = {new_ulid() for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_ulid(each) for each in made)


def test_ulids_of_a_later_millisecond_sort_later(monkeypatch):
    times = iter([1_700_000_000_000, 1_700_000_000_001, 1_700_000_001_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 1_000_000)
    made = [new_ulid() for _ in range(3)]
    assert made == sorted(made)
    assert made[0].startswith("01HF7YAT00")  # 1,700,000,000,000 ms, as any ULID library writes it


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (ULID, True),
        (ULID.lower(), True),
        (f"8{ULID[1:]}", False),  # more than 128 bits
        (ULID[:-1], False),
        (f"{ULID}A", False),
        (f"{ULID}\n", False),
        (ULID.replace("A", "I"), False),
        (ULID.replace("K", "\u212a"), False),  # the Kelvin sign, a K to a careless regular expression
        (ULID.replace("S", "\u017f"), False),
        ("", False),
    ],
)
def test_what_is_a_ulid(text, fits):
    assert is_ulid(text) is fits


@pytest.mark.req("ORC-09")
def test_request_ids():
    assert re.fullmatch(r"req_[0-9a-f]{12}", new_request_id())
    assert is_request_id("req_0123456789ab")
    assert not any(
        map(is_request_id, ["req_0123456789aB", "req_0123456789a", "req_0123456789abc", "x", "req_0123456789ab\n"])
    )


def test_call_ids_are_unique():
    assert new_call_id() != new_call_id()
    assert is_ulid(new_call_id().removeprefix("call_"))


@pytest.mark.parametrize(
    ("text", "fits"),
    [("thread 1", True), ("ünï/code:7", True), ("x" * 128, True), ("x" * 129, False), ("", False)]
    + [(f"a{bad}b", False) for bad in "\n\x00\x1b\u200b\u202e\ud800"],
)
def test_which_ids_of_clients_are_accepted(text, fits):
    assert is_valid_id(text) is fits


def test_ids_of_messages_are_uuids_that_sort_by_time(monkeypatch):
    made = [new_message_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    read = [uuid.UUID(each) for each in made]
    assert {(each.version, each.variant) for each in read} == {(7, uuid.RFC_4122)}
    assert [str(each) for each in read] == made  # as every parser writes them
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000 * 10**6)
    assert new_message_id().startswith("018bcfe5-6800-7")
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_001 * 10**6)
    assert new_message_id().startswith("018bcfe5-6801-7")


def test_a_process_and_its_child_do_not_draw_the_same_random_bytes():
    program = """
import os
from holodeck.core.ids import new_ulid
new_ulid()  # the next ones are drawn already
ours, theirs = os.pipe()
if os.fork() == 0:
    os.write(theirs, new_ulid().encode())
    os._exit(0)
print(new_ulid()[10:], os.read(ours, 26).decode()[10:])
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    of_parent, of_child = shown.stdout.split()
    assert len(of_parent) == len(of_child) == 16
    assert of_parent != of_child
