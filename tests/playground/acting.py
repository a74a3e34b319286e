"""What people do on the page, as the tests of this folder say it."""

from tests.playground.webdriver import ENTER, Browser

ANSWER = "[data-kind=text]"


async def say(browser: Browser, text: str) -> None:
    """Sends a message. Without keys, which take their time; `type_in` has them."""
    script = """(() => {
        if (!document.querySelector("#health.well")) return false;
        document.querySelector("#message").value += arguments[0];
        document.querySelector("#composer").requestSubmit();
        return true;
    })()"""
    await browser.until(script, text)


async def type_in(browser: Browser, text: str) -> None:
    await browser.until("document.querySelector('#health.well')")
    await browser.type("#message", text + ENTER)


async def see_answer(browser: Browser, text: str) -> None:
    """Waits for an answer that is complete."""
    await browser.until(
        "[...document.querySelectorAll('[data-kind=text]:not(.streaming)')].at(-1)?.textContent === arguments[0]"
        " && document.querySelector('.transcript').lastElementChild.matches('.turn')",
        text,
    )


async def press(browser: Browser, label: str) -> None:
    """The first button that is seen and says this."""
    script = """(() => {
        const isIt = (button) => button.checkVisibility() && button.textContent.trim() === arguments[0];
        const found = [...document.querySelectorAll("button")].find(isIt);
        found?.click();
        return Boolean(found);
    })()"""
    await browser.until(script, label)
