"""The agent's card, which other agents read before they talk to it. One document for 1.0 and 0.3."""

from collections.abc import Sequence
from typing import Any

from holodeck.core.tools import ToolSchema

APPROVAL_EXTENSION = "https://holodeck.dev/a2a/approval/v1"
VERSION, OLD_VERSION = "1.0", "0.3"
INPUT_MODES = ["text/plain", "application/json", "image/png", "image/jpeg", "application/pdf"]
OUTPUT_MODES = ["text/plain", "application/json"]


def agent_card(
    *,
    name: str,
    description: str,
    version: str,
    url: str,
    push: bool,
    secured: bool,
    issuers: Sequence[str] = (),
    tools: Sequence[ToolSchema] = (),
    also_old: bool = True,
) -> dict[str, Any]:
    """`issuers` are the issuers whose tokens the server accepts.

    Only the extended card, for clients that the server knows, names `tools`. `also_old` adds the members of 0.3.
    """
    about = description or f"The agent {name}."
    skills = [{"id": name, "name": name, "description": about, "tags": ["chat"]}]
    skills += [
        {"id": f"tool:{each.name}", "name": each.name, "description": each.description or each.name, "tags": ["tool"]}
        for each in tools
    ]
    card: dict[str, Any] = {
        "name": name,
        "description": about,
        "version": version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": VERSION},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": OLD_VERSION},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": OLD_VERSION},
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": push,
            "extendedAgentCard": True,
            "extensions": [
                {
                    "uri": APPROVAL_EXTENSION,
                    "description": "Approvals are decided by a data part {interruptId, approved, arguments?, reason?}.",
                    "required": False,
                }
            ],
        },
        "defaultInputModes": INPUT_MODES,
        "defaultOutputModes": OUTPUT_MODES,
        "skills": skills,
    }
    if also_old:
        card |= {"url": url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
        card["additionalInterfaces"] = [{"url": url, "transport": each} for each in ("JSONRPC", "HTTP+JSON")]
        card["supportsAuthenticatedExtendedCard"] = True
    if secured:
        schemes = _schemes(issuers)
        card["securitySchemes"] = schemes
        card["securityRequirements"] = [{"schemes": {each: {"list": []}}} for each in schemes]
    return card


def _schemes(issuers: Sequence[str]) -> dict[str, Any]:
    """Declares a key or token in a header and, if the issuer has an address, how to find its sign-in."""
    schemes: dict[str, Any] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    found = [f"{each.rstrip('/')}/.well-known/openid-configuration" for each in issuers if "://" in each]
    for number, url in enumerate(found, 1):
        name = "openid" if len(found) == 1 else f"openid-{number}"
        schemes[name] = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    return schemes
