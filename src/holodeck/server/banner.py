"""The banner that `serve` prints when the server is ready (SRV-04)."""

from collections.abc import Sequence
from urllib.parse import quote

from holodeck.server.guard import ANYWHERE
from holodeck.server.listen import network_address, only_on_loopback
from holodeck.server.wire import Wire

_CODES = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"  # bold, quiet, yellow, end
_OPTIONS = {True: ' -H "Authorization: Bearer $HOLODECK_API_KEY"', False: ""}


def banner(
    *,
    agent: str,
    model: str,
    host: str,
    port: int,
    wires: Sequence[Wire],
    tools: int,
    colours: bool,
    secured: bool = False,
    root_path: str = "",
    uds: str | None = None,
) -> str:
    """`host` and `port` are the ones that the server listens on. The banner shows addresses that a client can use."""
    bold, quiet, yellow, end = _CODES if colours else ("",) * len(_CODES)
    address = network_address() if uds is None and host in ANYWHERE else None
    url = (f"http://{shown_host(host)}:{port}" if uds is None else "http://localhost") + root_path
    rows = [
        *([("playground", f"{url}/")] if any(wire.has_playground for wire in wires) else []),
        *([("network", f"http://{address}:{port}{root_path}/")] if address else []),
        ("model", model),
        ("tools", str(tools)),
        ("protocols", ", ".join(wire.name for wire in wires)),
        *([("socket", uds)] if uds is not None else []),
        *([("access", "a key or token is needed")] if secured else []),
        *((name, url + path.format(name=quote(agent))) for wire in wires for name, path in wire.endpoints),
        ("docs", f"{url}/docs"),
        ("health", f"{url}/health"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{bold}{agent}{end} is ready", *(f"  {quiet}{name:<{width}}{end}{value}" for name, value in rows)]
    options = _OPTIONS[secured] + (f" --unix-socket {uds}" if uds else "")
    lines += [
        "",
        f"{quiet}Talk to it:{end}",
        *(f"  {wire.curl(url, agent, options)}" for wire in wires),
        f"{quiet}Ctrl+C stops it.{end}",
    ]
    if uds is None and not secured and not only_on_loopback(host):
        where = "on all addresses" if host in ANYWHERE else f"on {host}, which is more than this machine"
        lines.append(f"{yellow}warning{end}: listening {where}: any client that can connect may use the agent")
    return "\n".join(lines)


def shown_host(host: str) -> str:
    """Returns the host as part of an address that works on this machine."""
    name = "localhost" if host in ANYWHERE else host
    return f"[{name}]" if ":" in name else name
