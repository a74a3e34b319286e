"""What every test may use: the requirement marker."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirements that this test shows (tests/requirements.py)")
