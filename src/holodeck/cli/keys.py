"""`holodeck keys`: the API keys in a file that the server reads.

A key is printed once, alone on its line on standard output, so `KEY=$(holodeck keys create …)` works; everything else
goes to standard error. No command takes a key as an argument, where other users could see it.
"""

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from holodeck.access.api_key import PREFIX, digest, id_of
from holodeck.access.key_file import KeyFile, KeyLimits, StoredKey, change_key_file, read_key_file
from holodeck.access.principal import SCOPES
from holodeck.core.text import one_line, terminal_safe

_DURATION = re.compile(r"(\d{1,6})\s*(m|h|d|w|y)")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_YEAR = timedelta(days=365)
_LONGEST = 100 * _YEAR
_MAX_KEY = 4096

file_option = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("keys.json"),
    show_default=True,
    help="The key file, as server.auth.api_key.file names it.",
)


class Duration(click.ParamType[timedelta | None]):
    """Parses `90d`, `24h`, `2w`, `1y`; where allowed, `never` is None."""

    name = "duration"

    def __init__(self, *, never: bool = False) -> None:
        self._never = never

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | None:
        if isinstance(value, timedelta) or value is None:
            return value
        text = str(value).strip().lower()
        if self._never and text == "never":
            return None
        found = _DURATION.fullmatch(text)
        if found is None:
            examples = "30m, 24h, 90d, 2w or 1y" + (", or never" if self._never else "")
            self.fail(f"{one_line(text)!r} is not a duration; write e.g. {examples}", param, ctx)
        duration = int(found[1]) * _UNITS.get(found[2], _YEAR)
        if duration > _LONGEST:
            self.fail("at most 100y" + (", or never" if self._never else ""), param, ctx)
        if self._never and not duration:
            self.fail("a key that expires immediately cannot be used", param, ctx)
        return duration


@click.group("keys")
def command() -> None:
    """Create, list, revoke and rotate API keys."""


@command.command("create")
@click.option("--name", required=True, help="What the key is for; shown in lists.")
@click.option("--user", help="The user that the key acts for. Default: a new user.")
@click.option("--tenant", help="The user's tenant. Default: server.auth.tenant.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(SCOPES)),
    help="What the key may do; may be given several times. Default: server.auth.scopes.",
)
@click.option(
    "--expires",
    type=Duration(never=True),
    default="365d",
    show_default=True,
    help="How long the key is valid: 90d, 24h, …, or never.",
)
@click.option("--rpm", type=click.IntRange(1, 1_000_000), help="Requests a minute that the key may make.")
@file_option
def create(
    *,
    name: str,
    user: str | None,
    tenant: str | None,
    scopes: tuple[str, ...],
    expires: timedelta | None,
    rpm: int | None,
    path: Path,
) -> None:
    """Create a key and print it. It is shown only once; the file holds only its hash."""

    def add(file: KeyFile) -> tuple[StoredKey, str]:
        return file.add(
            name=name,
            user=user,
            tenant=tenant,
            scopes=scopes or None,
            expires=None if expires is None else _now() + expires,
            limits=None if rpm is None else KeyLimits(requests_per_minute=rpm),
        )

    is_first = not path.exists()
    key, text = change_key_file(path, add)
    _print_new(key, text, path)
    if is_first:
        click.echo(f"To require keys, write into agent.yaml: {_setting(path)}", err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@file_option
def list_keys(*, as_json: bool, path: Path) -> None:
    """Show all keys: id, name, user, tenant, scopes, expiry, state."""
    keys = [key.described() for key in read_key_file(path).keys]
    if as_json:
        click.echo(json.dumps(keys, indent=2))
        return
    heads = ("id", "name", "user", "tenant", "scopes", "created", "expires", "state")
    rows = [tuple(_shown(key[head]) for head in heads) for key in keys]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command("revoke")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@file_option
def revoke(*, ids: tuple[str, ...], path: Path) -> None:
    """Revoke keys. A running server ends their streams and runs within seconds."""
    change_key_file(path, lambda file: [file.revoke(key_id) for key_id in ids])
    click.echo(f"revoked: {' '.join(ids)}", err=True)


@command.command("rotate")
@click.argument("key_id", metavar="ID")
@click.option("--grace", type=Duration(), default="24h", show_default=True, help="How long the old key still works.")
@file_option
def rotate(*, key_id: str, grace: timedelta, path: Path) -> None:
    """Replace a key: a new secret under a new id, with the same user, tenant and scopes; the old key expires."""
    key, text = change_key_file(path, lambda file: file.rotate(key_id, grace))
    _print_new(key, text, path)
    old = read_key_file(path).find(key_id)
    if old.expires and old.state(_now()) == "active":
        click.echo(
            f"The old key works until {old.expires:%Y-%m-%d %H:%M} UTC; to end it now: holodeck keys revoke {key_id}",
            err=True,
        )


@command.command("check")
@file_option
def check(*, path: Path) -> int:
    """Read a key from standard input and show whose it is. Exit code 1 if it is not valid."""
    text = sys.stdin.read(_MAX_KEY).strip()
    key_id = id_of(text)
    if key_id is None:
        hint = "it was mistyped or cut off" if text.startswith(PREFIX) else f"it does not begin with {PREFIX}"
        click.echo(f"not a key: {hint}", err=True)
        return 1
    found = next((key for key in read_key_file(path).keys if key.id == key_id and key.sha256 == digest(text)), None)
    if found is None:
        click.echo(f"unknown: no key {key_id} with this secret in {terminal_safe(str(path))}", err=True)
        return 1
    click.echo(json.dumps(found.described(), indent=2))
    return 0 if found.state(_now()) == "active" else 1


def _setting(path: Path) -> str:
    return f"server: {{auth: {{mode: api_key, api_key: {{file: {json.dumps(terminal_safe(str(path)))}}}}}}}"


def _print_new(key: StoredKey, text: str, path: Path) -> None:
    end = f"expires {key.expires:%Y-%m-%d}" if key.expires else "never expires"
    of = f" of tenant {one_line(key.tenant)}" if key.tenant else ""
    about = f"key {key.id} ({one_line(key.name)}) for {one_line(key.user or 'key:' + key.id)}{of}, {end}"
    click.echo(f"{about}; written to {terminal_safe(str(path))}. It is shown only now:", err=True)
    click.echo(text)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return ",".join(str(each) for each in value) if isinstance(value, list) else one_line(str(value), 40)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
