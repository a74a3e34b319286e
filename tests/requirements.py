"""Every promise, as data. `tests/test_requirements.py` checks it both ways against the tests."""

from tests.requirement_lists.against_threats import THREATS
from tests.requirement_lists.to_users import USERS
from tests.requirement_lists.under_faults import FAULTS

REQUIREMENTS = (*USERS, *FAULTS, *THREATS)
BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}
