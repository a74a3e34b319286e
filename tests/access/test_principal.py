import pytest

from holodeck.access.principal import (
    ADMIN,
    ANONYMOUS_PRINCIPAL,
    CHAT,
    OF_ONE_USER,
    SCOPES,
    Principal,
    is_user_name,
)
from holodeck.core.owner import ANONYMOUS_OWNER, Owner, is_owner_name


def principal(*scopes):
    return Principal(tenant="acme", user="ann", scopes=frozenset(scopes), via="api_key", credential_id="7Q2M9KXD")


def test_an_owner_is_a_key_and_no_tuple():
    stored = {Owner("acme", "ann"): 1}
    assert stored.get(Owner("acme", "ann")) == 1
    assert stored.get(Owner("other", "ann")) is None
    assert Owner("a", "b") != ("a", "b")
    with pytest.raises(AttributeError):
        Owner("a", "b").user = "c"


def test_the_same_text_split_elsewhere_is_another_owner():
    assert Owner("a|b", "c") != Owner("a", "b|c")


@pytest.mark.parametrize("name", ["a", "ann@example.com", "corp|00u1", "Zoë Ångström", "x" * 255])
def test_names_that_are_accepted(name):
    assert is_owner_name(name)
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name", ["", " ", " ann", "ann ", "a\nb", "a\x00b", "\x7f", "x" * 256, "\ud800", "\u202eann", "a\u200bb", "a\u3000"]
)
def test_names_that_are_refused(name):
    assert not is_owner_name(name)
    assert not is_user_name(name)


@pytest.mark.parametrize("name", ["anonymous", "key:7Q2M9KXD", "system:x"])
def test_names_that_no_credential_may_claim(name):
    assert is_owner_name(name)
    assert not is_user_name(name)


def test_a_scope_is_matched_whole():
    assert principal("chat").may(CHAT)
    assert not principal("chat:read", "cha", "*").may(CHAT)
    assert not principal().may(CHAT)


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_what_admin_implies(scope):
    assert principal(ADMIN).may(scope) is (scope in OF_ONE_USER or scope == ADMIN)


def test_without_auth_everything_is_allowed():
    assert ANONYMOUS_PRINCIPAL.owner == ANONYMOUS_OWNER
    assert all(ANONYMOUS_PRINCIPAL.may(scope) for scope in SCOPES)
