"""The part of the fault matrix that runs with every suite, and that the catalogue and its page are whole."""

import re

import pytest

from tests.faults import page
from tests.faults.fault_catalogue import CI, KINDS
from tests.faults.matrix import Result, run
from tests.faults.mutants import MUTANTS, ROWS
from tests.faults.mutate import ROOT, SOURCES

SEEDS = 1
LONGEST_GAP = 30.0  # `make faults` measures gaps; in a suite other programs make them


@pytest.mark.timeout(120)
@pytest.mark.req("A03", "A05", "A08", "A14", "A17", "A19", "A25", "A26", "B04", "B05", "B06", "B09", "B16", "B18")
@pytest.mark.req("C01", "C02", "C03", "C05", "C07", "C08", "C09", "C10", "C11", "C12", "D01")
async def test_a_quick_part_of_the_matrix_has_no_failures():
    received: list[Result] = []
    results = await run([kind for kind in KINDS if kind.id in CI], SEEDS, received.append, longest_gap=LONGEST_GAP)
    assert {result.kind.id: result.failures for result in results if result.failures} == {}
    assert {result.kind.id for result in received} == CI
    assert all(result.runs for result in results)


def test_every_row_of_the_catalogue_is_played():
    rows = (
        [f"A{n:02d}" for n in range(1, 32)] + [f"B{n:02d}" for n in range(1, 21)] + [f"C{n:02d}" for n in range(1, 15)]
    )
    rows += ["D01", "D02", "D03", "D04", "D08", "D09", "D10", "D11", "D12", "D13"]
    played = [kind.id for kind in KINDS if re.fullmatch(r"[A-D]\d\d", kind.id)]
    assert sorted(played) == sorted(rows)
    assert len({kind.id for kind in KINDS}) == len(KINDS)


def test_the_page_is_what_the_catalogue_says():
    assert page.PAGE.read_text(encoding="utf-8") == page.written(), "run: python -m tests.faults --page"


def test_every_planted_fault_fits_the_code():
    """`make mutants` takes long; that it has nothing to plant any more should be known before."""
    assert {mutant.row for mutant in ROWS} <= {kind.id for kind in KINDS}
    for mutant in (*MUTANTS, *ROWS):
        text = (SOURCES / "holodeck" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant
        assert all((ROOT / test).exists() for test in mutant.tests.split()), mutant
