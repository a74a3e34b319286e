"""Files over REST: how many there may be, how large, and under which names."""

import aiohttp
import pytest

from holodeck.core.messages import text_of
from holodeck.files.limits import FileLimits
from holodeck.server.options import ServerSettings
from tests.scenarios.uploading import CHAT, WAYS, File, rest_form, rest_json
from tests.server.serving import served

REST = ServerSettings(protocols=("rest",))
BOTH = ServerSettings(protocols=("rest", "ag-ui"))
PLAIN = "text/plain"


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\..\\etc\\passwd", "/etc/passwd"])
async def test_a_name_is_never_a_path(name: str) -> None:
    async with served(settings=BOTH) as s:
        for way in WAYS.values():
            reply = await way(s, File(name, PLAIN, b"root:x:0:0"))
            assert [note["name"] for note in reply.files] == ["passwd"]
        assert not any("etc" in text_of(prompt.messages[-1].content) for prompt in s.model.prompts)


@pytest.mark.req("SRV-13")
async def test_a_file_in_json_may_have_ten_megabytes_and_one_in_a_form_more() -> None:
    async with served(settings=REST) as s:
        data = b"a" * 10_000_001
        in_json = await rest_json(s, File("large.txt", PLAIN, data))
        assert (in_json.status, in_json.problem["type"].rpartition("/")[2]) == (413, "payload-too-large")
        in_form = await rest_form(s, File("large.txt", PLAIN, data))
        assert [note["truncated"] for note in in_form.files] == [True]
        huge = await rest_form(s, File("huge.txt", PLAIN, b"a" * 50_000_001))
        assert (huge.status, "huge.txt" in huge.problem["detail"]) == (413, True)


@pytest.mark.req("SRV-12")
@pytest.mark.parametrize(("number", "status"), [(12, 200), (13, 422)])
async def test_the_agent_file_says_how_many_files_there_may_be(number: int, status: int) -> None:
    settings = ServerSettings(protocols=("rest",), files=FileLimits(max_files=12))
    file = {"content": "eHl6enk=", "mime_type": PLAIN}
    form = aiohttp.FormData({"message": "Read them"})
    for i in range(number):
        form.add_field("files", b"xyzzy", filename=f"{i}.txt", content_type=PLAIN)
    async with served(settings=settings) as s:
        async with s.post({"message": "Read them", "files": [file] * number}, CHAT) as in_json:
            assert in_json.status == status
        async with s.client.post(s.url + CHAT, data=form) as in_form:
            assert in_form.status == status
