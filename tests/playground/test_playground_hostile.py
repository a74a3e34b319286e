"""Hostile text on every way into the page: nothing runs, nothing leaves (T25)."""

import json

import pytest

from holodeck.core.messages import ToolCall
from holodeck.errors import ModelError
from holodeck.models.scripted import Turn, says
from tests.playground.acting import say
from tests.playground.hostile_pages import payloads
from tests.playground.page_server import serving_page

HOST = "attacker.example"
PAYLOADS = payloads(HOST)

FORBIDDEN = "script,iframe,frame,object,embed,form,meta,link,base,style,video,audio,portal,template,[style]:not(.event,.event-space),[ping],[name]"
FINDINGS = """
    const [place, forbidden] = arguments, found = [];
    const all = [...document.querySelectorAll(place + " *")];
    if (window.pwned) found.push("a script ran");
    for (const node of all) {
        if (node.matches(forbidden) && !node.matches("form.edit")) found.push("element " + node.outerHTML.slice(0, 120));
        for (const {name} of node.attributes) if (name.startsWith("on")) found.push("attribute " + name);
        if (node.localName === "svg" && !node.classList.contains("icon")) found.push("svg");
        if (node.localName === "img" && !node.src.startsWith("data:image/")) found.push("img " + node.src);
        if (node.id && !node.id.startsWith("event-")) found.push("id " + node.id);
        if (node.localName === "a") {
            if (!node.href.startsWith("https://")) found.push("link " + node.href);
            if (node.rel !== "noopener noreferrer" || node.target !== "_blank") found.push("rel of " + node.href);
            const host = new URL(node.href).host;
            const said = node.parentElement.textContent;
            if (!said.includes(host)) found.push("no host beside " + node.href);
        }
    }
    return found"""
RENDER = """
    const [texts, done] = arguments;
    (async () => {
        const app = document.querySelector("script[type=module]").src;
        const {MarkdownView} = await import(app.replace("app.js", "view-markdown.js"));
        const times = [];
        for (const text of texts) {
            for (const size of [text.length, Math.ceil(text.length / 50)]) {
                const view = new MarkdownView(), started = performance.now();
                document.querySelector("#transcript").append(view.node);
                for (let end = size; end < text.length + size; end += size) view.update(text.slice(0, end));
                times.push(performance.now() - started);
            }
        }
        return times;
    })().then(done, (error) => done(String(error.stack)))"""


def foreign(requests: list[str], page_server) -> list[str]:
    return [url for url in requests if not url.startswith((page_server.url, "data:", "about:"))]


@pytest.mark.req("T25")
async def test_hostile_markdown_runs_nothing_and_fetches_nothing(browser):
    assert len(PAYLOADS) >= 150
    async with serving_page() as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('#health.well')")
        await browser.requests()
        times = await browser.run_async(RENDER, PAYLOADS)
        assert isinstance(times, list), times
        assert max(times) < 2500  # milliseconds for the worst, drawn fifty times while it comes
        assert await browser.run(FINDINGS, "#transcript", FORBIDDEN) == []
        assert await browser.run("return document.querySelectorAll('#transcript a').length") > 20
        assert foreign(await browser.requests(), page_server) == []
        assert await browser.console() == []


@pytest.mark.req("T25")
async def test_hostile_text_on_every_way_into_the_page_stays_text(browser):
    """As message, reasoning, arguments, result, tool name, state, error, title, inspector, edited message."""
    everything = "\n\n".join(text for text in PAYLOADS if len(text) < 1000)
    arguments = json.dumps({"city": everything, "<img src=x onerror=window.pwned=1>": 1})
    plan = json.dumps({"patch": [{"op": "add", "path": "/<img src=x onerror=window.pwned=1>", "value": everything}]})
    named = "<img/src=x/onerror=window.pwned=1>"
    turns = (
        Turn(
            reasoning=[everything],
            text=[everything],
            calls=[
                ToolCall(id="c1", name="get_weather", arguments=arguments),
                ToolCall(id="c2", name=named, arguments="{}"),
                ToolCall(id="c3", name="update_state", arguments=plan),
                ToolCall(id="c4", name="delete_file", arguments=json.dumps({"name": everything})),
            ],
        ),
        Turn(error=ModelError(everything)),
    )
    async with serving_page(*turns, state={}) as page_server:
        await browser.open(f"{page_server.url}#session=<img src=x onerror=window.pwned=1>")
        await browser.until("document.querySelector('#health.well')")
        await browser.requests()
        await browser.run("document.querySelector('#message').value = arguments[0]", everything)
        await say(browser, "!")
        await browser.shows(".call .status", "needs your approval")
        await browser.click("#open-inspector")
        await browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
        await browser.until("document.querySelector('.event')?.click() ?? document.querySelector('.event-detail pre')")
        await browser.click("#tab-State")
        await browser.shows(".state-tree", HOST)
        await browser.click(".call[data-status=approval] .primary")
        await browser.shows(".turn .error", HOST)
        for place in ("#transcript", "#inspector .panel", ".session-list li a"):
            assert await browser.run(FINDINGS, place, FORBIDDEN) == []
        await browser.reload()
        await browser.shows(".user-text", HOST)
        assert await browser.run(FINDINGS, "#transcript", FORBIDDEN) == []
        assert foreign(await browser.requests(), page_server) == []
        assert [line for line in await browser.console() if "404" not in line] == []


async def test_the_watch_would_see_an_intruder(browser):
    """The other tests prove something only if this one does."""
    async with serving_page() as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('#health.well')")
        await browser.console()
        planted = "<a href=javascript:1 onclick=x id=y>x</a><img src=https://attacker.example/p>"
        plant = f"document.querySelector('#transcript').innerHTML = '{planted}';"
        found = await browser.run(plant + FINDINGS, "#transcript", FORBIDDEN)  # at once: the page may draw itself anew
        assert {each.split()[0] for each in found} >= {"attribute", "id", "link", "img"}
        await browser.until("true")
        assert any("Content Security Policy" in line for line in await browser.console())
        await browser.run("const script = document.createElement('script'); script.text = 'window.pwned = 1'; document.body.append(script)")  # fmt: skip
        assert await browser.run("return window.pwned") is None


async def test_a_link_says_where_it_leads(browser):
    lies = "[https://bank.example/](https://evil.example/x) and https://plain.example/y and [good](https://ok.example/)"
    async with serving_page(says(lies)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "link?")
        await browser.shows(".turn", "Retry")
        assert await browser.texts(".link") == [
            "https://bank.example/ (evil.example)",
            "https://plain.example/y",
            "good (ok.example)",
        ]
