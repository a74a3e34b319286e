"""`holodeck` with one planted bug: a session's id is taken for Latin-1. A fuzzer that does not find it finds nothing."""

import sys

from holodeck.cli.main import main
from holodeck.server.routes import sessions
from holodeck.server.routes.request_input import session_id as _right


def _wrong(text: str) -> str:
    text.encode("latin-1")
    return _right(text)


if __name__ == "__main__":
    setattr(sessions, "session_id", _wrong)  # noqa: B010  the name that the routes have imported
    sys.exit(main())
