"""Chooses the encoder: server-sent events, unless the client names protobuf.

curl and every HTTP library send `*/*`, and binary is useless on a terminal, so wildcards mean SSE here, unlike in the
TypeScript encoder. Clients before 1.0 cannot read ten of the protobuf events and always get SSE.
"""

from holodeck.core.encoder import Encoder
from holodeck.wires.agui.encode_proto import CONTENT_TYPE as PROTOBUF
from holodeck.wires.agui.encode_proto import ProtoEncoder
from holodeck.wires.agui.encode_sse import SseEncoder
from holodeck.wires.agui.profile import Profile
from holodeck.wires.sse import CONTENT_TYPE as SSE


def encoder_for(accept: str | None, profile: Profile, run_id: str) -> Encoder:
    """The encoder for one reader of one run."""
    if profile is Profile.FULL and _prefers_protobuf(accept or ""):
        return ProtoEncoder(run_id, profile)
    return SseEncoder(run_id, profile)


def _prefers_protobuf(accept: str) -> bool:
    wishes = dict(map(_wish, accept.split(",")))
    return wishes.get(PROTOBUF, 0.0) > 0 and wishes[PROTOBUF] >= wishes.get(SSE, 0.0)


def _wish(media_range: str) -> tuple[str, float]:
    name, *parameters = media_range.split(";")
    weight = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            weight = _weight(value.strip())
    return name.strip().lower(), weight


def _weight(text: str) -> float:
    """0 to 1; what is no number, or no such number, counts as a refusal."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
