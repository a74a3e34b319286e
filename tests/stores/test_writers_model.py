"""Every interleaving of what writes to one session, and what each rule of the stores prevents."""

import pytest

from tests.stores.writers_model import Actor, Start, WriterRules, search

MISTAKES: dict[str, tuple[Start, tuple[Actor, ...], str]] = {
    "keys_are_given_out_once": ("stored", ("deletion",), "a late run writes into a session of another owner"),
    "commits_need_their_run": ("new", ("deletion",), "a deleted session comes back"),
    "others_raise_the_epoch_by_two": ("stored", ("terminal",), "a message that a run takes for stored is lost"),
    "only_runs_that_had_their_turn_fence": (
        "stored",
        ("queue",),
        "a run of a living process loses a session that nothing else wrote to",
    ),
    "first_ending_counts": ("stored", (), "readers are shown another ending than the stored one"),
    "stored_endings_prove_commits": ("stored", ("queue",), "readers are shown another ending than the stored one"),
}


@pytest.mark.parametrize("start", ["stored", "new"])
@pytest.mark.parametrize(
    ("actors", "least"),
    [(("queue", "terminal"), 20_000), (("queue", "deletion"), 20_000), (("terminal", "deletion"), 1_000)],
)
def test_no_interleaving_of_writers_loses_or_mixes_anything(start, actors, least):
    states, found = search(WriterRules(), start, actors)
    assert found == set()
    assert states > least, "the model has become too small to mean anything"


@pytest.mark.parametrize("rule", MISTAKES)
def test_each_rule_of_writers_is_needed(rule):
    start, actors, violation = MISTAKES[rule]
    assert violation not in search(WriterRules(), start, actors)[1]
    assert violation in search(WriterRules(**{rule: False}), start, actors, violation)[1]


def test_a_late_run_ends_no_run_of_another_owner():
    violation = "a late run ends a run of another owner"
    assert violation in search(WriterRules(keys_are_given_out_once=False), "stored", ("deletion",), violation)[1]
