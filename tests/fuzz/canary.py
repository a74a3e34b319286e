"""`holodeck` with one planted bug: a session's id is taken for Latin-1. A fuzzer that does not find it finds nothing."""

import sys

from holodeck.cli.main import main
from holodeck.server import intake

_right = intake.session_id


def _wrong(text: str) -> str:
    text.encode("latin-1")
    return _right(text)


if __name__ == "__main__":
    setattr(intake, "session_id", _wrong)  # noqa: B010  the name that `session_of` looks up
    sys.exit(main())
