"""Who gets protobuf: only who names it and can read it (SRV-06)."""

import pytest

from holodeck.wires.agui.decode import profile_of
from holodeck.wires.agui.encode import ProtoEncoder, SseEncoder, encoder_for
from holodeck.wires.agui.profile import Profile

PROTO = "application/vnd.ag-ui.event+proto"


@pytest.mark.req("SRV-06")
@pytest.mark.parametrize(
    ("accept", "binary"),
    [
        (None, False),
        ("", False),
        ("text/event-stream", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", False),
        ("text/event-stream, */*;q=0.1", False),
        (PROTO, True),
        (PROTO.upper(), True),
        (f"{PROTO}, text/event-stream", True),
        (f"text/event-stream,{PROTO}", True),
        (f"{PROTO};q=0", False),
        (f"{PROTO};q=0.0, */*", False),
        (f"{PROTO};q=0.1, text/event-stream", False),
        (f"{PROTO} ; Q=0.9 , text/event-stream;q=0.5", True),
        (f"{PROTO};q=0.1, */*", True),
        (f"{PROTO};v=1;q=1", True),
        (f"{PROTO};q=many", False),
        (f"{PROTO};q=nan", False),
        (f"{PROTO};q=-1", False),
        (f"{PROTO};q=2", False),
        (f"x{PROTO}", False),
        (";;,,=;q=,", False),
    ],
)
def test_accept(accept: str | None, *, binary: bool) -> None:
    encoder = encoder_for(accept, Profile.FULL, "run")
    assert isinstance(encoder, ProtoEncoder if binary else SseEncoder)
    assert encoder.content_type == (PROTO if binary else "text/event-stream")
    assert isinstance(encoder_for(accept, Profile.LEGACY, "run"), SseEncoder)


@pytest.mark.parametrize(
    ("version", "profile"),
    [
        ("1.0", Profile.FULL),
        ("1", Profile.FULL),
        ("1.7.2", Profile.FULL),
        ("12.0", Profile.FULL),
        ("0.9", Profile.LEGACY),
        ("0.0.59", Profile.LEGACY),
        (None, Profile.LEGACY),
        ("", Profile.LEGACY),
        ("v1", Profile.LEGACY),
        ("1.", Profile.LEGACY),
        ("1.0\n", Profile.LEGACY),
        ("9" * 5000, Profile.LEGACY),
        (1.0, Profile.LEGACY),
        (["1.0"], Profile.LEGACY),
    ],
)
def test_profile(version: object, profile: Profile) -> None:
    assert profile_of(version) is profile
