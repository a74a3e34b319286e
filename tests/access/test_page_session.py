"""The code of `serve --open` and the token that it is exchanged for: once, in time, and for nothing more than a user may do."""

import pytest

from holodeck.access.failure import Failure
from holodeck.access.page_session import CODE_SECONDS, PAGE_USER, TOKEN_SECONDS, PageSession
from holodeck.access.principal import ADMIN, CHAT, Principal, is_user_name


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_code_is_worth_one_token() -> None:
    session = PageSession()
    code = session.new_code()
    token = await session.exchange(code)
    assert token is not None
    assert await session.exchange(code) is None
    assert isinstance(session.check(code), Failure), "a code is no token"
    found = session.check(token)
    assert isinstance(found, Principal)
    assert (found.user, found.may(CHAT), found.may(ADMIN)) == (PAGE_USER, True, False)
    assert not is_user_name(PAGE_USER), "no other credential can name this user"


@pytest.mark.parametrize("code", ["", "x", "0" * 43, "é"])
async def test_a_wrong_code_is_worth_nothing_and_spends_nothing(code: str) -> None:
    session = PageSession()
    assert await session.exchange(code) is None
    right = session.new_code()
    assert await session.exchange(code) is None
    assert await session.exchange(right) is not None


async def test_processes_that_share_a_secret_share_sign_ins() -> None:
    one, other, stranger = PageSession(), PageSession(), PageSession()
    one.use(b"of the store")
    other.use(b"of the store")
    other.spend = one.spend
    code = one.new_code()
    token = await other.exchange(code)
    assert token is not None
    assert await one.exchange(code) is None, "spent at the other"
    assert isinstance(one.check(token), Principal)
    assert isinstance(stranger.check(token), Failure)
    assert await stranger.exchange(one.new_code()) is None


async def test_a_code_and_a_token_have_their_time() -> None:
    clock = Clock()
    session = PageSession(clock=clock)
    code = session.new_code()
    clock.now += CODE_SECONDS
    assert await session.exchange(code) is None
    token = await session.exchange(session.new_code())
    assert token is not None
    clock.now += TOKEN_SECONDS - 1
    assert isinstance(session.check(token), Principal)
    clock.now += 1
    assert isinstance(session.check(token), Failure)


def test_without_a_sign_in_no_token_is_valid() -> None:
    for token in ("hdp_", "hdp_x", "hdp_a.b", ""):
        assert isinstance(PageSession().check(token), Failure)
