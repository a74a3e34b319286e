"""Every promise, as data. `tests/test_requirements.py` checks it both ways against the tests."""

from tests.promises.against_threats import THREATS
from tests.promises.to_users import USERS
from tests.promises.under_faults import FAULTS

REQUIREMENTS = (*USERS, *FAULTS, *THREATS)
BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}
