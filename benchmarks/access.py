"""What a credential costs: an API key, a token that is remembered, a token that is new. CPU time, in one process."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks import wrong_keys
from benchmarks.options import Options
from benchmarks.report import Row, Target
from holodeck.access.authenticator import Authenticator
from holodeck.access.failure import Failure
from holodeck.access.key_file import change_key_file
from holodeck.access.key_ring import KeyRing
from holodeck.access.principal import OF_ONE_USER, Defaults, Principal
from tests.access.signing import claims, token
from tests.access.test_tokens import tokens

TIMES = 10_000
NEW_TOKENS = 200


async def microseconds(work: Callable[[], Awaitable[Principal | Failure]], times: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        assert isinstance(await work(), Principal)
    return (time.process_time() - begun) / times * 1e6


async def measured(options: Options) -> dict[str, float]:
    file = options.scratch / "keys.json"
    _, key = change_key_file(file, lambda keys: keys.add(name="bench"))
    ring = KeyRing(path=file, environment_key=None, defaults=Defaults("default", OF_ONE_USER))
    authenticator = Authenticator(keys=ring)

    async def check_key() -> Principal | Failure:
        return ring.check(key)

    checker, known = tokens(), token()
    await checker.check(known)
    fresh = iter([token(claims(sub=f"user{number}")) for number in range(NEW_TOKENS)])
    assert authenticator.enabled
    return {
        "API key": await microseconds(check_key, TIMES),
        "remembered token": await microseconds(lambda: checker.check(known), TIMES),
        "new token, RS256": await microseconds(lambda: checker.check(next(fresh)), NEW_TOKENS),
    }


def run(options: Options) -> list[Row]:
    rounds = [asyncio.run(measured(options)) for _ in range(options.rounds)]
    limits = {"API key": 5, "remembered token": 5, "new token, RS256": 150}
    checks = [
        Row(
            measure="check of a credential",
            system=name,
            unit="us",
            samples=[each[name] for each in rounds],
            target=Target(limit=limit),
            take=min,
        )
        for name, limit in limits.items()
    ]
    return [*checks, *wrong_keys.run(options)]
