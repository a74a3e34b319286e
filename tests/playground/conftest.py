"""One Chromium for all tests of this folder. Each test has a server of its own, and a browser that remembers no session."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from holodeck.telemetry import logs
from tests.playground.stage import one_port
from tests.playground.webdriver import Browser, chromedriver, chromium, connected


@pytest.fixture(scope="session")
def chromium_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("chromium")
    with chromedriver(place / "driver.log") as driver, chromium(driver, place / "profile") as address:
        yield address


@pytest.fixture
async def browser(chromium_address: str) -> AsyncIterator[Browser]:
    async with connected(chromium_address) as browser:
        # The page of the test before is left where it is: a browser that goes to another site and back takes a new process.
        await browser.console()
        yield browser
        await browser.cdp(
            "Storage.clearDataForOrigin", origin=f"http://127.0.0.1:{one_port()}", storageTypes="local_storage"
        )


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    fd = os.open(os.devnull, os.O_WRONLY)
    output = logs.configure(fd=fd)
    yield
    output.close()
    os.close(fd)
