"""Lines and what becomes of them: answers, commands, approvals, checks, limits, files."""

import asyncio
import io
import json
from urllib.parse import quote

import msgspec
import pytest

from holodeck.agent.prompting import RECALL, RECALLED
from holodeck.cli.conversation.chat_loop import INTERRUPTED
from holodeck.cli.conversation.commands import COMMANDS
from holodeck.cli.conversation.session import ChatConfig
from holodeck.cli.conversation.validation import MAX_INPUT, InputChecks
from holodeck.cli.lines import Interrupted
from holodeck.cli.plain_display import JsonDisplay
from holodeck.config.build_stores import build_sqlite
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, UserMessage, unanswered
from holodeck.core.owner import DEFAULT_TENANT, Owner
from holodeck.core.tools import Approval
from holodeck.core.usage import TokenUsage
from holodeck.errors import ConfigError, ModelUnreachable
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.sessions.transcript import Transcript
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.function_files import load_function
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.rules import ToolRules
from tests.cli.chat_fixture import ChatFixture


@pytest.fixture
def fixture(tmp_path):
    return ChatFixture(
        tmp_path, ScriptedModel([says("Yes.", usage=TokenUsage(prompt_tokens=1000, completion_tokens=200))])
    )


# leaving


@pytest.mark.req("CHT-03", "CHT-10")
@pytest.mark.parametrize("word", ["exit", "QUIT", "/exit", "/quit", None])
async def test_ways_to_leave(fixture, word):
    assert await fixture.converse(*([word, "never read"] if word else [])) == 0
    assert fixture.model.prompts == []


@pytest.mark.req("CHT-10")
async def test_ctrl_c_twice_leaves_but_not_with_a_line_between(fixture):
    assert await fixture.converse(Interrupted(), "hello", Interrupted(), Interrupted(), "never read") == INTERRUPTED
    assert fixture.received == ["hello"]
    assert fixture.output.count("again exits") == 2


async def test_a_script_learns_that_its_last_answer_failed(tmp_path):
    fixture = ChatFixture(
        tmp_path, ScriptedModel([Turn(error=ModelUnreachable("gone")), says("Back.")]), interactive=False
    )
    assert await fixture.converse("one") == 4
    assert await fixture.converse("one", "two") == 0


# checks (CHT-07)


@pytest.mark.req("CHT-07")
@pytest.mark.parametrize(
    ("line", "received", "printed"),
    [
        ("   ", [], ""),
        ("x" * (MAX_INPUT + 1), [], "at most 10000"),
        ("x" * MAX_INPUT, ["x" * MAX_INPUT], "messages"),
        ("he\x1b\x00llo\x9b", ["hello"], "messages"),
        ("\udcff", [], "not valid UTF-8"),
        ("two\nlines", ["two\nlines"], "messages"),
    ],
)
async def test_input_is_checked(fixture, line, received, printed):
    await fixture.converse(line)
    assert fixture.received == received
    assert printed in fixture.output
    assert bool(fixture.printed) is bool(printed)


@pytest.mark.req("CHT-07")
async def test_the_chain_can_be_extended(fixture, tmp_path):
    (tmp_path / "checks.py").write_text(
        "def polite(text):\n    if 'please' not in text:\n        raise ValueError('Say please.')\n"
        "def shout(text):\n    return text.upper()\n"
    )
    own = [load_function("checks.py", name, tmp_path) for name in ("polite", "shout")]
    await fixture.converse("do it", "do it, please", checks=InputChecks().then(*own))
    assert fixture.received == ["DO IT, PLEASE"]
    assert "✗ Say please." in fixture.printed
    with pytest.raises(ConfigError, match="missing"):
        load_function("checks.py", "missing", tmp_path)


# approvals


def wiping(done: list[str], approval: Approval = Approval.ALWAYS) -> Catalogue:
    def wipe(what: str) -> str:
        """Deletes."""
        done.append(what)
        return "gone"

    rules = ToolRules(approval={"wipe": approval})
    return Catalogue([Source(toolset=FunctionToolset([FunctionTool.of(wipe)]), rules=rules)])


@pytest.mark.parametrize(
    ("answers", "carried_out"),
    [
        (["y"], ["all"]),
        (["maybe", "YES"], ["all"]),
        (["n"], []),
        ([""], []),
        (["e", '{"what": "less"}'], ["less"]),
        (["e", "{oops", "[1]", '{"what": "less"}'], ["less"]),
    ],
)
async def test_a_tool_that_needs_approval_asks(tmp_path, answers, carried_out):
    done: list[str] = []
    fixture = ChatFixture(
        tmp_path, ScriptedModel([calls(("wipe", '{"what": "all"}')), says("All right.")]), wiping(done)
    )
    assert await fixture.converse("wipe it", *answers) == 0
    assert done == carried_out
    assert '? wipe(what="all")' in fixture.printed
    assert [default for question, default in fixture.lines.asked if "arguments" in question][:1] in (
        [],
        ['{"what": "all"}'],
    )
    assert fixture.context.session.transcript.messages[-1].content == "All right."


@pytest.mark.req("CHT-05")
@pytest.mark.parametrize(
    ("cut", "line"),
    [
        (None, []),
        ("stopped", ["(stopped; /retry asks again)"]),
        ("interrupted", ["(the last answer was cut by a crash; /retry asks again, or send a message to continue)"]),
        (
            "shutting-down",
            ["(the last answer was cut when the server stopped; /retry asks again, or send a message to continue)"],
        ),
    ],
)
async def test_a_resumed_chat_says_why_its_last_answer_was_cut_and_how_to_continue(tmp_path, cut, line):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Half of it")]))
    await fixture.converse("tell me")
    messages = fixture.context.session.transcript.messages
    messages[-1] = msgspec.structs.replace(messages[-1], cut=cut)
    fixture.printed.clear()
    fixture.context.show_last_exchange()
    assert fixture.printed[1:] == line


@pytest.mark.req("CHT-05")
async def test_a_resumed_chat_names_the_calls_whose_outcome_is_not_known(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([]))
    await fixture.converse()
    asked = [ToolCall(id=name, name=name, arguments="{}") for name in ("pay", "look", "wait")]
    found = ToolMessage(call_id="look", name="look", content="found")
    fixture.context.session.transcript = Transcript(
        [UserMessage(content="pay it")],
        pending=PendingStep(
            assistant=AssistantMessage(content="", tool_calls=tuple(asked)), results=(found,), begun=("pay", "look")
        ),
    )
    fixture.printed.clear()
    fixture.context.show_last_exchange()
    assert fixture.printed == [
        "> pay it",
        "(pay: no result was stored, and whether it took effect is not known; send a message to continue)",
    ]


@pytest.mark.parametrize("answer", [Interrupted(), None])
async def test_an_unanswered_approval_is_a_refusal(tmp_path, answer):
    done: list[str] = []
    model = ScriptedModel([calls(("wipe", '{"what": "all"}')), says("Fine.")])
    fixture = ChatFixture(tmp_path, model, wiping(done))
    await fixture.converse("wipe it", *([answer, "never mind"] if answer else []))
    assert done == []
    assert len(model.prompts) == (2 if answer else 1)
    assert unanswered(fixture.context.session.transcript.messages) == []


# commands


@pytest.mark.req("CHT-03")
async def test_help_names_every_command(fixture):
    await fixture.converse("/help")
    for name in COMMANDS:
        assert name in fixture.output
    assert {"/help", "/clear", "/history", "/save", "/load", "/tools", "/model", "/retry", "/export", "/exit"} <= set(
        COMMANDS
    )


async def test_a_command_that_there_is_not(fixture):
    await fixture.converse("/hlep \x1b[31m")
    assert fixture.printed == ["✗ There is no /hlep; did you mean /help?"]


async def test_a_path_is_no_command(fixture):
    await fixture.converse("/etc/no-such-file is what?")
    assert fixture.received == ["/etc/no-such-file is what?"]


@pytest.mark.req("CHT-03")
async def test_history_and_clear(fixture):
    await fixture.converse("hel\x1blo", "/history", "/clear", "/history", "again")
    assert "> hello" in fixture.printed
    assert "  Yes." in fixture.printed
    assert fixture.printed.index("The conversation is empty.") > fixture.printed.index("  Yes.")
    assert len(fixture.model.prompts[-1].messages) == 1


@pytest.mark.req("CHT-03", "CHT-04")
async def test_save_and_load(fixture):
    await fixture.converse("remember me", "/save", "/clear", "/load last", "go on")
    assert [each.content for each in fixture.model.prompts[-1].messages] == ["remember me", "Yes.", "go on"]
    saved = next(line.removeprefix("Saved as ") for line in fixture.printed if line.startswith("Saved as "))
    await fixture.converse("/load")
    assert fixture.printed[-2].startswith(f"1  {saved}")
    assert fixture.printed[-2].endswith("remember me")


async def test_a_copy_in_a_file_is_loaded_as_it_was(fixture, tmp_path):
    copy = tmp_path / "copy.json"
    await fixture.converse("remember me", f"/save {copy}", "and more", f"/load {copy}", "go on")
    assert json.loads(copy.read_text())["messages"][0]["content"] == "remember me"
    assert [each.content for each in fixture.model.prompts[-1].messages] == ["remember me", "Yes.", "go on"]


async def test_nothing_is_saved_where_the_agent_keeps_nothing(fixture, tmp_path):
    fixture.sessions = "sessions: {store: memory}\n"
    await fixture.converse("remember me", "/save")
    assert "✗ sessions.store is memory" in fixture.output
    assert not (tmp_path / ".holodeck").exists()


async def test_a_store_that_cannot_be_opened_is_no_reason_to_stop_talking(fixture, tmp_path):
    (tmp_path / ".holodeck").write_text("a file")
    fixture.keeps = True
    await fixture.converse("remember me", "go on")
    assert [each.content for each in fixture.model.prompts[-1].messages] == ["remember me", "Yes.", "go on"]
    assert fixture.output.count("! this chat is not saved: ") == 1


async def test_a_conversation_that_expired_meanwhile_is_reported(fixture):
    fixture.keeps, fixture.sessions = True, "sessions: {ttl_seconds: 1}\n"
    waits = asyncio.sleep(1.1)  # longer than the conversation lives
    await fixture.converse("remember me", waits, "go on")
    assert [each.content for each in fixture.model.prompts[-1].messages] == ["go on"]
    assert fixture.output.count("this conversation has expired (sessions.ttl_seconds) or was deleted;") == 1


@pytest.mark.req("CHT-04")
async def test_every_turn_is_stored_where_the_server_finds_it(fixture):
    fixture.keeps = True
    fixture.config = ChatConfig(user_id="ann")
    await fixture.converse("one", "/clear", "two", "/retry")
    store = build_sqlite(fixture.loaded).sessions
    await store.start()
    try:
        owner = Owner(DEFAULT_TENANT, "ann")
        found = [await store.read(each.session_id, owner=owner) for each in await store.sessions_of(owner=owner)]
        assert [[message.content for message in each.messages] for each in found] == [["two", "Yes."], ["one", "Yes."]]
        assert await store.count() == 2
    finally:
        await store.close()


async def test_retry_asks_the_same_again_and_keeps_only_the_new_answer(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("First."), says("Second.")]))
    await fixture.converse("/retry", "well?", "/retry")
    assert "✗ There is no message to send again." in fixture.printed
    assert fixture.received == ["well?", "well?"]
    assert [each.content for each in fixture.context.session.transcript.messages] == ["well?", "Second."]


@pytest.mark.req("CHT-04")
async def test_retry_keeps_the_turns_that_were_added_elsewhere(tmp_path):
    """The user has continued the conversation in the browser, and comes back to the terminal."""
    fixture = ChatFixture(tmp_path, ScriptedModel([says("First."), says("Second.")]))
    fixture.keeps = True

    async def elsewhere():
        store, session = build_sqlite(fixture.loaded).sessions, fixture.context.session
        await store.start()
        conversation = await store.open(session.session_id, owner=fixture.context.store.owner)
        await conversation.commit([UserMessage(content="and then?"), AssistantMessage(content="This.")])
        conversation.close()
        await store.close()

    await fixture.converse("well?", elsewhere(), "/retry")
    texts = [each.content for each in fixture.context.session.transcript.messages]
    assert texts == ["well?", "First.", "and then?", "Second."]


@pytest.mark.parametrize("then", [("/retry",), ("/save", "/clear", "/load last", "/retry"), ("/retry", "/retry")])
async def test_a_summary_stays_with_its_conversation(tmp_path, then):
    model = ScriptedModel([says("1"), says("2"), says("They counted."), says("3"), says("4"), says("5")])
    fixture = ChatFixture(tmp_path, model, config=ChatConfig(max_messages=4), summarize=True)
    await fixture.converse("a", "b", "c", *then)
    again = model.prompts[4:]
    assert len(again) == then.count("/retry")
    for prompt in again:
        assert [each.content for each in prompt.messages] == [RECALL, RECALLED + "They counted.", "c"]


@pytest.mark.req("CHT-03")
async def test_tools_and_model(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("")]), wiping([]))
    await fixture.converse("/tools", "/model")
    assert fixture.printed == ["wipe (asks first)  Deletes.", "scripted"]


@pytest.mark.parametrize("filtered", ["tools: [wipe]", "only: [read]", "hide: [tools]"])
async def test_the_terminal_hides_what_the_middleware_hides(tmp_path, filtered):
    """A terminal is a reader like any other: its events, its history, its list of tools, its export."""
    model, shown = ScriptedModel([calls(("wipe", '{"what": "all"}')), says("Done.")]), io.StringIO()
    middleware = f"middleware: [{{type: filter, {filtered}}}]\n"
    fixture = ChatFixture(
        tmp_path, model, wiping([], approval=Approval.NEVER), middleware=middleware, out=JsonDisplay(shown)
    )
    page = tmp_path / "page.md"
    await fixture.converse("wipe it", "/history", "/tools", f"/export {page}", "/copy")
    assert "wipe" not in shown.getvalue().replace("wipe it", "")
    assert "Done." in shown.getvalue()
    assert "wipe" not in fixture.output.replace("wipe it", "")
    assert "wipe" not in page.read_text().replace("wipe it", "")
    assert fixture.copied == ["Done."]
    assert fixture.context.session.message_count == 4, "the model's history has the call"


async def test_the_terminal_applies_a_function_to_each_event(tmp_path):
    (tmp_path / "events.py").write_text(
        "from holodeck import events\n\n\ndef louder(event):\n"
        "    is_text = isinstance(event, events.TextAdded)\n"
        "    return events.TextAdded(event.message_id, event.delta.upper()) if is_text else event\n"
    )
    shown = io.StringIO()
    fixture = ChatFixture(
        tmp_path,
        ScriptedModel([says("It rains.")]),
        middleware="middleware: [{file: events.py, function: louder}]\n",
        out=JsonDisplay(shown),
    )
    await fixture.converse("hello")
    assert "IT RAINS." in "".join(json.loads(line).get("delta", "") for line in shown.getvalue().splitlines())


async def test_an_agent_without_tools_says_so(fixture):
    await fixture.converse("/tools")
    assert fixture.printed == ["The agent has no tools."]


async def test_export_writes_a_page_and_overwrites_none(tmp_path):
    model = ScriptedModel([calls(("wipe", '{"what": "all"}')), says("Do**n**e.")])
    fixture = ChatFixture(tmp_path, model, wiping([]))
    page = tmp_path / "page.md"
    await fixture.converse("wipe\nit", "y", f"/export {page}", f"/export {page}", f"/export {tmp_path}/no/page.md")
    text = page.read_text()
    for part in ("# wipe it\n", "## You\n\nwipe\nit\n", '`wipe(what="all")`', "> ✓ wipe\n>\n> gone", "Do**n**e."):
        assert part in text
    assert fixture.output.count("exists; name another file") == 1
    assert "cannot be written" in fixture.output


async def test_reasoning_is_kept_and_shown_on_demand(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([Turn(reasoning=["Hmm\x1b[2J", " so"], text=["Yes."])]))
    await fixture.converse("/reasoning", "why?", "/reasoning", "/verbose")
    assert fixture.printed[0] == "The model has not sent any reasoning."
    assert "Hmm so" in fixture.printed
    assert fixture.context.display.verbose is True


# files


async def test_files_go_with_the_next_message(fixture, tmp_path):
    note = tmp_path / "my note.txt"
    note.write_text("the secret is 42")
    await fixture.converse(f"/attach {note}", "what is it?", f"'{note}'", "and now?", "bare")
    contents = [prompt.messages[-1].content for prompt in fixture.model.prompts]
    assert [len(content) if isinstance(content, tuple) else 1 for content in contents] == [2, 2, 1]
    assert "the secret is 42" in contents[0][1].text
    assert "my note.txt: 16 characters as text" in fixture.printed
    assert "[1 file] > " in [question for question, _ in fixture.lines.asked]


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("/attach", "No file is attached"),
        ("/attach nowhere.txt", "There is no file nowhere.txt."),
        ("/attach .", ". is a folder; name a file."),
        ("/attach ~nobody-here/a.txt", "There is no file ~nobody-here/a.txt."),
        ("/attach /" + "a" * 5000, "There is no file /aaa"),
        ("/load ~nobody-here/a.json", "there is no saved chat '~nobody-here/a.json'"),
        ("/load /" + "a" * 5000, "✗ /aaa"),
        ("/save ~nobody-here/a.json", "cannot be written: No such file or directory"),
        ("/export ~nobody-here/a.md", "cannot be written: No such file or directory"),
        ("/export /" + "a" * 5000, "✗ /aaa"),
        ("/attach /a\0b", "There is no file /ab."),
        ("/load /a\0b", "there is no saved chat"),
        ("/export /a\0b/c", "cannot be written"),
    ],
)
async def test_files_that_are_none(fixture, line, printed):
    await fixture.converse(line)
    assert printed in fixture.output


async def test_a_dropped_file_is_named_and_attached_once(fixture, tmp_path):
    note = tmp_path / "my notes.txt"
    note.write_text("eggs")
    await fixture.converse(f"'{note}'", f"/attach {note}", f"file://{quote(str(note))}")
    assert fixture.printed == ["With the next message: my notes.txt (/detach NAME removes one, /detach all)"] * 3
    assert fixture.context.attachments.files == [note]


async def test_a_file_is_detached_by_its_path(fixture, tmp_path):
    kept, other = tmp_path / "kept.txt", tmp_path / "other.txt"
    for file in (kept, other):
        file.write_text("eggs")
    await fixture.converse(f"/attach {kept}", f"/attach {other}", f"/detach {other}")
    assert fixture.context.attachments.names == ["kept.txt"]


async def test_a_file_that_cannot_be_read_stays_attached_and_nothing_is_sent(fixture, tmp_path):
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"MZ\x90\x00 no PDF")
    await fixture.converse(f"/attach {broken}", "read it")
    assert fixture.model.prompts == []
    assert "✗ broken.pdf" in fixture.output
    assert fixture.printed[-1] == "With the next message: broken.pdf (/detach NAME removes one, /detach all)"
    assert fixture.context.attachments.files == [broken]


# limits (CHT-09)


@pytest.mark.req("CHT-09")
async def test_a_warning_once_at_80_percent_with_an_offer(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), config=ChatConfig(max_messages=10))
    await fixture.converse(*["more"] * 5)
    warnings = [line for line in fixture.printed if line.startswith("!")]
    assert len(warnings) == 1
    assert "8 of 10 messages" in warnings[0]
    assert "/save" in warnings[0]
    assert "/clear" in warnings[0]


@pytest.mark.req("CHT-09")
async def test_the_same_for_tokens_where_the_limit_is_known(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("word " * 100)]), max_tokens=300)
    await fixture.converse("more", "more")
    assert "of 300 tokens" in fixture.output


@pytest.mark.req("CHT-04", "CHT-05", "CHT-06")
async def test_status_and_messages_know_what_was_spent(fixture):
    await fixture.converse("one", "two")
    assert any(line.startswith("4/50 messages · 2,400 tokens · 0.") for line in fixture.printed)
    reply = fixture.context.session.transcript.messages[1]
    assert isinstance(reply, AssistantMessage)
    assert reply.tokens_used is not None
    assert reply.tokens_used.total_tokens == 1200
    assert reply.timestamp.tzinfo is not None


async def test_scripts_get_the_cost_with_the_end(tmp_path):
    usage = TokenUsage(prompt_tokens=10, completion_tokens=2, cost=0.25)
    out = io.StringIO()
    await ChatFixture(tmp_path, ScriptedModel([says("Yes.", usage=usage)]), out=JsonDisplay(out)).converse("one")
    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["type"], last["usage"]["cost"]) == ("RunFinished", 0.25)


@pytest.mark.parametrize(
    ("costs", "shown"),
    [
        ((0.001, 0.0005), "cost 0.0015"),
        ((0.00001, 0.00002), "cost under 0.0001"),
        ((1.5, 1000), "cost 1,001.50"),
        ((0.0, 0.0), "cost 0.0000"),  # a model that is known to be free
        ((0.001, None), "tokens · 0."),  # half a sum is none: the seconds come next
    ],
)
async def test_the_status_line_shows_the_cost_if_all_of_it_is_known(tmp_path, costs, shown):
    usages = [TokenUsage(prompt_tokens=10, completion_tokens=2, cost=cost) for cost in costs]
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.", usage=usage) for usage in usages]))
    await fixture.converse("one", "two")
    status = [line for line in fixture.printed if "messages ·" in line]
    assert shown in status[-1]
    assert (" · cost" in status[-1]) is (costs[1] is not None)


async def test_quiet_says_nothing_around_the_answers(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), config=ChatConfig(quiet=True, max_messages=2))
    await fixture.converse("one", "two")
    assert fixture.printed == []


def wipe(what: str) -> str:
    return f"{what} is gone"


@pytest.mark.req("CHT-09")
async def test_a_tool_result_belongs_to_its_call_after_trimming(tmp_path):
    """What the model is shown never starts in the middle of a step, whatever the limit."""
    turns = [calls(("wipe", '{"what": "all"}')), says("Done.")] * 4
    model = ScriptedModel(turns)
    fixture = ChatFixture(tmp_path, model, FunctionToolset([FunctionTool.of(wipe)]), config=ChatConfig(max_messages=5))
    await fixture.converse(*["again"] * 4)
    assert len(model.prompts) == 8
    for prompt in model.prompts:
        assert len(prompt.messages) <= 5
        assert unanswered(prompt.messages) == []
        assert isinstance(prompt.messages[0], UserMessage)


# comfort


async def test_a_tool_may_be_allowed_for_the_whole_chat(tmp_path):
    done: list[str] = []
    model = ScriptedModel(
        [turn for letter in "abc" for turn in (calls(("wipe", f'{{"what": "{letter}"}}')), says(letter))]
    )
    fixture = ChatFixture(tmp_path, model, wiping(done))
    await fixture.converse("one", "always", "two", "/clear", "three", "n")
    assert done == ["a", "b"]
    assert '? wipe(what="b") (always allowed in this chat)' in fixture.printed
    assert '? wipe(what="c")' in fixture.printed


async def test_beyond_the_limit_the_chat_says_what_the_model_sees(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), config=ChatConfig(max_messages=4))
    await fixture.converse("one", "two", "three")
    lengths = [line.partition(" · ")[0] for line in fixture.printed if " messages" in line and line[0].isdigit()]
    assert lengths == ["2/4 messages", "4/4 messages", "6 messages, the model sees the last 4"]
    assert len(fixture.model.prompts[-1].messages) == 3  # the last question is among the four; its answer came after


async def test_a_stopped_answer_leaves_what_is_known_of_the_tokens(tmp_path):
    known = says("Yes.", usage=TokenUsage(prompt_tokens=1000, completion_tokens=200))
    fixture = ChatFixture(tmp_path, ScriptedModel([known, says("Half"), known]))
    await fixture.converse("one", "two", "three")
    facts = [line.split(" · ")[1] for line in fixture.printed if "messages ·" in line]
    assert facts == ["1,200 tokens", "≥ 1,200 tokens", "≥ 2,400 tokens"]


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("/zzz", "There is no /zzz; /help lists the commands."),
        ("/tools wip", "There is no tool wip; did you mean wipe?"),
        ("/load 7", "There is no chat number 7"),
        ("/copy", "There is no answer to copy."),
        ("/detach x", "x is not attached."),
    ],
)
async def test_mistakes_get_a_way_out(tmp_path, line, printed):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), wiping([]))
    await fixture.converse(line)
    assert printed in fixture.output


async def test_one_tool_is_shown_with_its_schema(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), wiping([]))
    await fixture.converse("/tools wipe")
    assert fixture.printed[0] == "wipe (asks first)"
    assert "Deletes." in fixture.printed
    assert any('"what": {' in line for line in fixture.printed)


async def test_files_can_be_taken_out_again(tmp_path):
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(name)
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]))
    attach = [f"/attach {tmp_path / name}" for name in ("a.txt", "b.txt", "c.txt")]
    await fixture.converse(*attach, "/detach 2", "/detach a.txt", "now")
    assert "b.txt is no longer attached." in fixture.printed
    assert "c.txt" in str(fixture.model.prompts[0].messages[-1].content)
    assert "a.txt" not in str(fixture.model.prompts[0].messages[-1].content)
    await fixture.converse(*attach, "/detach", "now")
    assert str(fixture.model.prompts[-1].messages[-1].content) == "now"


async def test_saved_chats_have_numbers(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Yes.")]), keeps=True)
    await fixture.converse("first question")
    await fixture.converse("second question")
    await fixture.converse("/load", "/load 2", "go on")
    assert any(line.startswith("1  ") and "second question" in line for line in fixture.printed)
    assert "2 messages: first question" in fixture.printed
    assert "> first question" in fixture.printed
    assert [str(message.content) for message in fixture.model.prompts[-1].messages] == [
        "first question",
        "Yes.",
        "go on",
    ]


async def test_copy(tmp_path):
    fixture = ChatFixture(tmp_path, ScriptedModel([says("Run:\n\n```sh\nmake demo\n```\nor\n~~~\nx = 1\n~~~\nDone.")]))
    await fixture.converse("how?", "/copy code", "/copy", "/copy all")
    assert fixture.copied == ["x = 1\n", "Run:\n\n```sh\nmake demo\n```\nor\n~~~\nx = 1\n~~~\nDone."]
    assert "/copy code the last code block" in fixture.output
