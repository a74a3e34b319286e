"""`python -m tests.fuzz`: first a planted bug must be found, then nothing may be. 1 if either goes wrong."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.fuzz.fuzzing import CANARY_PATH, fuzz, installed

EXAMPLES = 2000
CANARY_EXAMPLES = 200


async def run(examples: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        planted = await fuzz(Path(folder, "canary"), CANARY_EXAMPLES, canary=True, seed=seed, only=CANARY_PATH)
        if not planted.server_errors:
            sys.stdout.write(planted.output + "\nThe planted bug was not found: this fuzzing shows nothing.\n")
            return 1
        sys.stdout.write(f"The planted bug was found ({planted.cases} cases).\n")
        sys.stdout.flush()
        code = 0
        for name, keyed in (("without credentials", False), ("with a key", True)):
            received = await fuzz(Path(folder, name.replace(" ", "-")), examples, seed=seed, keyed=keyed)
            if received.code:
                sys.stdout.write(received.output)
            errors = f"{received.server_errors} server errors, exit code {received.code}"
            sys.stdout.write(f"{name}: {received.cases:,} cases, {errors}\n")
            sys.stdout.flush()
            code = code or received.code
    return code


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--max-examples", type=int, default=EXAMPLES, help="of each operation (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if installed() is None:
        sys.stderr.write("schemathesis is not installed: make setup\n")
        return 2
    return asyncio.run(run(given.max_examples, given.seed))


if __name__ == "__main__":
    sys.exit(main())
