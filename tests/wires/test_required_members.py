"""The refusal of a request that lacks a required member, on every wire."""

from functools import partial

import pytest

from holodeck.errors import InvalidRequest
from holodeck.wires import body as read

READERS = {
    "a string": [read.text, read.name, read.valid_id, partial(read.short_text, limit=9)],
    "an object": [read.table],
}


@pytest.mark.parametrize(("wanted", "reader"), [(wanted, each) for wanted in READERS for each in READERS[wanted]])
def test_a_required_member_that_is_absent_is_missing_and_not_of_another_type(wanted, reader):
    with pytest.raises(InvalidRequest) as refused:
        reader(None, "threadId")
    assert refused.value.message == f"threadId is missing or null; it must be {wanted}"
    with pytest.raises(InvalidRequest, match=f"threadId must be {wanted}, not a number"):
        reader(3, "threadId")
