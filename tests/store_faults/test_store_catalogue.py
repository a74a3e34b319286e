"""The catalogue of store faults is whole, its planted faults fit the code, and the checker notices each broken promise."""

import dataclasses
import math

import pytest

from tests.faults.mutate import ROOT, SOURCES
from tests.store_faults.evidence_checker import UNKNOWN, Evidence, Seen, Turn, judge
from tests.store_faults.fault_rig import POSTGRES, SQLITE, Backends, FaultRig
from tests.store_faults.numbered_model import Script
from tests.store_faults.store_catalogue import ROWS
from tests.store_faults.store_mutants import MUTANTS

BOUNDED = {
    ("S04", SQLITE): 2,
    ("S06", SQLITE): 3,
    ("S15", POSTGRES): 1,
}  # rows without a random moment, and their rounds
PATIENT = 60.0  # seconds: no server that is slow counts as dead
SCRIPT = Script("r1", say=2, act=1)


def test_every_row_of_the_design_is_played():
    assert [row.id for row in ROWS] == [f"S{number:02d}" for number in range(1, 31)]
    for row in ROWS:
        assert row.stores, row.id
        assert row.full >= row.rounds, row.id
        assert row.tests, f"nothing of {row.id} is in `make test`"
        for test in row.tests:
            file, _, function = test.partition("::")
            assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), f"{row.id}: there is no {test}"


def test_every_planted_fault_fits_the_code_and_names_a_row_that_is_played():
    played = {(row.id, store) for row in ROWS for store in row.stores}
    for mutant in MUTANTS:
        assert (mutant.row, mutant.store) in played, mutant
        for file, old, _ in mutant.changes:
            assert (SOURCES / "holodeck" / file).read_text(encoding="utf-8").count(old) == 1, (mutant.row, old)
    assert {mutant.row for mutant in MUTANTS} == {row.id for row in ROWS}, "each row has to fail on a planted fault"


def events(*kinds, text=SCRIPT.answer):
    made = [{"type": kind} for kind in kinds]
    made[1:1] = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "a2", "delta": part} for part in (text[:4], text[4:])]
    return made


GOOD = Evidence(
    clients=[
        Seen(
            script=SCRIPT, thread="t", ids=[0, 1, 2, 9], events=events("RUN_STARTED", "RUN_FINISHED"), state="finished"
        )
    ],
    sessions={
        "t": [
            {"role": "user", "id": "m-r1", "content": str(SCRIPT), "run_id": "r1"},
            {"role": "assistant", "id": "a1", "tool_calls": [{"id": "call_r1_0"}], "run_id": "r1"},
            {"role": "tool", "id": "x", "call_id": "call_r1_0", "content": "acted", "run_id": "r1"},
            {"role": "assistant", "id": "a2", "content": SCRIPT.answer, "run_id": "r1"},
        ]
    },
    acts=["call_r1_0"],
    turns=[Turn("t", "r1", True), Turn("u", "r2", True), Turn("t", "r1", False), Turn("t", "r3", True)],
)


def client(**changes):
    return {"clients": [dataclasses.replace(GOOD.clients[0], **changes)]}


def session(*messages):
    return {"sessions": {"t": list(messages)}}


STORED = GOOD.sessions["t"]
WRONG = {
    "I1: run r1 has the endings": client(events=events("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR")),
    "I1: run r1 (finished) has no ending": client(events=events("RUN_STARTED", "STEP_FINISHED")),
    "I1: run r1 is running": client(state="running"),
    "I1: run r1 ended with RUN_FINISHED": client(state="interrupted"),
    "I1: run r1 was shown the failure None": client(code="interrupted"),
    "I1: run r1 is cancelled at the server": client(answered="cancelled"),
    "I2: acknowledged and lost": session(*STORED[1:]),
    "I2: stored twice": session(STORED[0], *STORED),
    "I3: run r1 shows": session(*STORED[:3], {**STORED[3], "content": "0 "}),
    "I4: session t": session(*STORED[:2], STORED[3]),
    "I4: the model": {"offences": ["calls"]},
    "I5: tools acted twice": {"acts": ["call_r1_0", "call_r1_0"]},
    "I5: call call_r9_0 acted": {"acts": ["call_r1_0", "call_r9_0"]},
    "I5: call call_r1_0 is said": {"acts": []},
    "I10: run r1 was sent the event": client(ids=[0, 1, 1]),
    "I10: run r1 was sent the tokens": client(events=events("RUN_STARTED", "RUN_FINISHED", text="0 2 end")),
    "I11: session t mixes": session(*STORED[:3], {**STORED[3], "run_id": "r2"}, {**STORED[3], "run_id": "r1"}),
    "I11: session t had the running runs": {"turns": [Turn("t", "r1", True), Turn("t", "r2", True)]},
    "I12: runs": {"open_runs": ["r1"]},
    "I12: keys": {"without_expiry": ["hd:1"]},
}


def test_the_checker_accepts_what_is_right():
    verdict = judge(GOOD)
    assert verdict.broken == []
    assert (verdict.acknowledged, verdict.lost, verdict.doubled, verdict.unknown) == (1, 0, 0, 0)


def test_the_checker_counts_calls_whose_outcome_is_unknown():
    cut = {**STORED[2], "content": f"Stopped; {UNKNOWN}."}
    assert judge(dataclasses.replace(GOOD, **session(*STORED[:2], cut, STORED[3]))).unknown == 1


@pytest.mark.parametrize("sentence", WRONG)
def test_the_checker_notices(sentence):
    broken = judge(dataclasses.replace(GOOD, **WRONG[sentence])).broken
    assert any(each.startswith(sentence) for each in broken), broken


@pytest.mark.req("D03")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "store"), BOUNDED)
async def test_the_rig_plays_a_row(name, store, tmp_path):
    """`make faults-stores` plays all of them."""
    (row,) = (row for row in ROWS if row.id == name)
    rounds = BOUNDED[name, store]
    with Backends() as backends:
        rig = FaultRig(backends, tmp_path / "row", store, seed=1, rounds=rounds, slack=math.inf, take_over=PATIENT)
        await row.play(rig)
    assert rig.figures.rounds == rounds
    assert (rig.figures.lost, rig.figures.doubled) == (0, 0)
