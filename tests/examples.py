"""How many examples the property tests try: a few with every suite, many with `make fuzz` (EXAMPLES=50)."""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> settings:
    """For `number` with every suite. Without a deadline: how long one takes depends on what else the machine does."""
    return settings(max_examples=number * TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
