"""The refusals at the start: each one sentence that names the fix, exit code 2 (A71, A72)."""

import pytest

from holodeck.config.auth import build_access
from holodeck.config.load import load_config
from holodeck.errors import ConfigError, StartError
from tests.access.signing import jwks, pem, rsa_key
from tests.config.missing_packages import uninstall

HEAD = "name: a\nmodel: {provider: demo}\n"
JWT = "issuer: https://id.example.com\n      audience: holodeck\n      keys: {url: https://id.example.com/certs}"


@pytest.fixture
def load(tmp_path):
    def load(auth="", **environment):
        file = tmp_path / "agent.yaml"
        body = f"server:\n  auth:\n    {auth}\n" if auth else ""
        file.write_text(HEAD + body)
        return load_config(file, environment={"XDG_CACHE_HOME": str(tmp_path / "cache"), **environment})

    return load


def jwt(**changes):
    lines = {
        "issuer": "https://id.example.com",
        "audience": "holodeck",
        "algorithms": "[RS256]",
        "keys": "{url: https://id.example.com/certs}",
        **changes,
    }
    return "mode: jwt\n    jwt: {" + ", ".join(f"{name}: {value}" for name, value in lines.items() if value) + "}"


def proxy(**changes):
    lines = {"from": "[10.0.0.5/32]", "secret": "sssssssssssssssssssssssssssssssss", **changes}
    return "mode: proxy\n    proxy: {" + ", ".join(f"{name}: {value}" for name, value in lines.items() if value) + "}"


REFUSED = {
    "algorithms of two families": (jwt(algorithms="[RS256, HS256]"), "one family"),
    "algorithm none": (jwt(algorithms="[none]"), "not a signature"),
    "algorithm nOnE beside another": (jwt(algorithms="[RS256, nOnE]"), "not a signature"),
    "unknown algorithm": (jwt(algorithms="[RS257]"), "RS257"),
    "no algorithm": (jwt(algorithms="[]"), "known"),
    "no audience": (jwt(audience=None), "audience is required"),
    "empty audiences": (jwt(audience="[]"), "audience is required"),
    "keys over http": (jwt(keys="{url: http://id.example.com/certs}"), "https://"),
    "issuer over http": (jwt(issuer="http://id.example.com", keys="{discover: true}"), "https://"),
    "issuer over http, whose keys are a file": (jwt(issuer="http://id.example.com", keys="{file: jwks.json}"), "https://"),
    "keys by two ways": (jwt(keys="{url: https://a.example/c, discover: true}"), "exactly one way"),
    "keys by no way": (jwt(keys="{}"), "exactly one way"),
    "short secret": (jwt(algorithms="[HS256]", keys="{secret: tooshort}"), "32 bytes"),
    "secret with RS256": (jwt(keys="{secret: ssssssssssssssssssssssssssssssssss}"), "HS*"),
    "HS256 with public keys": (jwt(algorithms="[HS256]"), "HS*"),
    "no such key file": (jwt(keys="{file: none.json}"), "No such file"),
    "no such pem": (jwt(keys="{pem: none.pem}"), "No such file"),
    "grant of an unknown scope": (jwt(grant="{a: [everything]}"), "everything"),
    "mode jwt without a block": ("mode: jwt", "needs the block server.auth.jwt"),
    "mode proxy without a block": ("mode: proxy", "needs the block server.auth.proxy"),
    "mode hook without a block": ("mode: hook", "needs the block server.auth.hook"),
    "a block without its mode": ("mode: api_key\n    hook: {file: auth.py}", "no effect"),
    "none beside another mode": ("mode: [none, api_key]", "none cannot be combined"),
    "unknown scope": ("scopes: [everything]", "everything"),
    "act-as for all": ("scopes: [act-as]", "act-as"),
    "tenant with a space at its end": ("tenant: 'a '", "tenant"),
    "no key file": ("mode: api_key", "holodeck keys create"),
    "proxy from everywhere": (proxy(**{"from": "[0.0.0.0/0]"}), "whole internet"),
    "proxy from everywhere, IPv6": (proxy(**{"from": "['::/0']"}), "whole internet"),
    "proxy from everywhere, in halves": (proxy(**{"from": "[0.0.0.0/1, 128.0.0.0/1]"}), "whole internet"),
    "proxy from nonsense": (proxy(**{"from": "[localhost]"}), "not a network"),
    "proxy without a secret": (proxy(secret=None), "secret is needed"),
    "proxy without a secret, also unix": (proxy(**{"from": "[unix, 10.0.0.5/32]", "secret": None}), "secret is needed"),
    "proxy with a short secret": (proxy(secret="short"), "16 characters"),
    "hook outside the folder": ("mode: hook\n    hook: {file: ../auth.py}", "outside the agent's folder"),
    "hook that is not there": ("mode: hook\n    hook: {file: auth.py}", "no such file"),
    "issuers without names": ("mode: jwt\n    jwt: [{a}, {b}]".replace("{a}", "{" + JWT.replace("\n      ", ", ") + "}").replace("{b}", "{issuer: x, audience: y, keys: {discover: true}}"), "its own name"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_place_and_the_fix(load, case):
    text, words = REFUSED[case]
    with pytest.raises(StartError) as refused:
        build_access(load(text))
    message = refused.value.message
    assert refused.value.exit_code == 2
    assert words in message
    assert "agent.yaml:" in message
    assert "\n" not in message
    assert "ssss" not in message
    assert "tooshort" not in message


@pytest.mark.parametrize("key", ["short", "x" * 31, "x" * 40 + " y", "x" * 40 + ".y.z"])
def test_a_bad_key_in_the_environment_is_refused(load, key):
    with pytest.raises(StartError, match="HOLODECK_API_KEY") as refused:
        build_access(load(HOLODECK_API_KEY=key))
    assert key not in refused.value.message
    assert "openssl rand" in refused.value.message


@pytest.mark.parametrize("mode", ["mode: none", jwt()])
def test_a_key_in_the_environment_that_would_have_no_effect(load, mode):
    with pytest.raises(StartError, match="HOLODECK_API_KEY is set"):
        build_access(load(mode, HOLODECK_API_KEY="x" * 32))


def test_a_short_rsa_key_is_refused(load, tmp_path):
    (tmp_path / "p.pem").write_bytes(pem(rsa_key("small", 1024)))
    with pytest.raises(StartError, match="2,048"):
        build_access(load(jwt(keys="{pem: p.pem}")))


def test_a_readable_key_file_is_refused(load, tmp_path):
    (tmp_path / "keys.json").write_text('{"version": 1, "keys": []}')
    (tmp_path / "keys.json").chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        build_access(load("mode: api_key"))


def test_a_readable_cache_is_refused(load, tmp_path):
    config = load(jwt())
    build_access(config)
    from hashlib import sha256

    cache = tmp_path / "cache" / "holodeck" / f"jwks-{sha256(b'https://id.example.com/certs').hexdigest()[:16]}.json"
    cache.parent.mkdir(parents=True)
    cache.write_text("{}")
    cache.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        build_access(config)


def test_joserfc_that_is_not_installed_is_named(load, monkeypatch):
    uninstall(monkeypatch, "joserfc", "holodeck.access.tokens", "holodeck.access.jwk")
    with pytest.raises(StartError, match=r"pip install 'holodeck-agents\[jwt\]'"):
        build_access(load(jwt()))


@pytest.mark.parametrize(
    "text",
    [
        jwt(),
        jwt(keys="{discover: true}"),
        jwt(keys="{url: http://127.0.0.1:9/certs}"),
        jwt(keys="{file: jwks.json}"),
        jwt(keys="{pem: p.pem}"),
        jwt(algorithms="[HS256, HS512]", keys="{secret: ssssssssssssssssssssssssssssssssss}"),
        proxy(),
        proxy(**{"from": "[unix]", "secret": None}),
        "mode: hook\n    hook: {file: auth.py}",
        f"mode: [jwt, hook]\n    hook: {{file: auth.py}}\n    jwt:\n      {JWT}",
    ],
)
def test_what_is_accepted(load, tmp_path, text):
    (tmp_path / "jwks.json").write_bytes(jwks())
    (tmp_path / "p.pem").write_bytes(pem())
    (tmp_path / "auth.py").write_text("async def who(headers, address):\n    return None\n")
    assert build_access(load(text)).enabled


def test_a_hook_has_to_be_async(load, tmp_path):
    (tmp_path / "auth.py").write_text("def who(headers, address):\n    return None\n")
    with pytest.raises(StartError, match="async"):
        build_access(load("mode: hook\n    hook: {file: auth.py}"))


def test_the_one_liner(load):
    assert build_access(load(HOLODECK_API_KEY="x" * 32)).enabled
    assert not build_access(load()).enabled
    assert not build_access(load("mode: none")).enabled


@pytest.mark.parametrize("text", ["mode: magic", "mode: []", "jwt: {isuer: x}", "public: [everything]", "more: 1"])
def test_an_unknown_key_or_value_is_a_config_error(load, text):
    with pytest.raises(ConfigError) as refused:
        load(text)
    assert refused.value.exit_code == 1
    assert "agent.yaml:" in refused.value.message
