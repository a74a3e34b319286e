"""How many examples the property tests try: a few with every suite, the same ones each time; many, at random, with `make fuzz`
(EXAMPLES=50)."""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> settings:
    """For `number` with every suite. Without a deadline: how long one takes depends on what else the machine does."""
    return settings(
        max_examples=number * TIMES,
        derandomize=TIMES == 1,  # the suite gives the same result each time; the search for new cases is `make fuzz`
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
