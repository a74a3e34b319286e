"""Every interleaving of the protocol by which replicas share a run (spec/stores.md 5.6), and what each of its rules prevents."""

import pytest

from tests.stores.protocol_model import Observer, Rules, search

MISTAKES: dict[str, tuple[Observer, str]] = {
    "commits_name_their_epoch": ("client", "commits of two owners are interleaved"),
    "intent_before_call": ("client", "a tool acted without a trace in the store"),
    "unknown_calls_stay_unknown": ("client", "a call that was made is reported as not made"),
    "begun_calls_are_not_repeated": ("client", "a tool acted twice"),
    "numbers_jump_at_take_over": ("client", "the client skips events of the new owner"),
    "endings_are_stored_first": ("client", "the client was shown an ending that the store does not have"),
    "readers_ask_the_database": ("reader", "a reader of the copy waits for ever"),
    "turns_wait_for_the_run_before": ("client", "two runs of one session at a time"),
    "ended_runs_are_not_begun_again": ("client", "a request is carried out twice"),
}


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("observer", ["client", "reader"])
def test_no_interleaving_violates_the_protocol(observer, continues):
    states, found = search(Rules(on_crash_continue=continues), observer)
    assert found == set()
    assert states > 5_000, "the model has become too small to mean anything"


@pytest.mark.parametrize("rule", MISTAKES)
def test_each_rule_is_needed(rule):
    observer, violation = MISTAKES[rule]
    _, found = search(Rules(**{rule: False}, on_crash_continue=observer == "client"), observer, violation)
    assert violation in found
