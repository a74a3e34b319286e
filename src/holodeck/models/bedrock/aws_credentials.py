"""AWS credentials and the signatures made with them (SigV4), by botocore.

botocore's chain is the one that every AWS tool uses: variables, files and profiles of `~/.aws`, SSO, containers, instances.
It reads files and calls servers, so it runs in a thread. The thread is its own: in the event loop's default pool, a server
that does not answer would block the threads that resolve host names.
"""

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, HTTPClientError
from botocore.session import Session

from holodeck.core.text import one_line
from holodeck.errors import ModelAuthFailed, ModelError, ModelUnreachable

SERVICE = "bedrock"
ADVICE = (
    "AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or model.profile, "
    "and that the account may use the model"
)
_NONE = (
    "There are no AWS credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or model.profile to a profile of ~/.aws"
)
_FORBIDDEN = frozenset({401, 403})
_EXPIRED = re.compile(r"expired|unrecognizedclient|security token .{0,40}invalid", re.IGNORECASE)
_HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


class AwsSigner:
    """Signs requests with the credentials of a profile, of the given variables, or of botocore's own chain."""

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        variables: Mapping[str, str] | None = None,
        signed: Mapping[str, str] | None = None,
    ) -> None:
        """`variables` are those of the agent's environment; `signed` are further headers that every request has."""
        self._region = region
        self._profile = profile
        self._variables = variables or {}
        self._signed = signed or {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aws credentials")
        self._credentials: Credentials | None = None
        key, secret = (self._variables.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        token = self._variables.get("AWS_SESSION_TOKEN") or None
        self._given = Credentials(key, secret, token) if key and secret and not profile else None

    async def headers(self, url: str, body: bytes | None) -> Mapping[str, str]:
        credentials = await asyncio.get_running_loop().run_in_executor(self._thread, self._current)
        of_body = {} if body is None else {"Content-Type": "application/json"}
        request = AWSRequest(
            method="GET" if body is None else "POST", url=url, data=body, headers={**of_body, **self._signed}
        )
        SigV4Auth(credentials, SERVICE, self._region).add_auth(request)
        return {name: request.headers[name] for name in _HEADERS if name in request.headers}

    def refused(self, headers: Mapping[str, str], status: int, text: str) -> bool:  # noqa: ARG002  the words say all
        """Forgets expired credentials, so that they are looked up again: `aws sso login` may have renewed them."""
        if status not in _FORBIDDEN or not _EXPIRED.search(text) or self._given is not None:
            return False
        self._credentials = None
        return True

    def _current(self) -> ReadOnlyCredentials:
        """The current credentials; botocore renews those that expire."""
        try:
            if self._credentials is None:
                self._credentials = self._found()
            return self._credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _failure(error) from error

    def _found(self) -> Credentials:
        if self._given is not None:
            return self._given
        found = Session(profile=self._profile or self._variables.get("AWS_PROFILE") or None).get_credentials()
        if found is None:
            raise ModelAuthFailed(f"{_NONE}.")
        return found


def region_of(profile: str | None) -> str | None:
    """The region that a profile of `~/.aws/config` has, if any."""
    try:
        region = Session(profile=profile).get_config_variable("region")
    except BotoCoreError:
        return None
    return region if isinstance(region, str) else None


def _failure(error: Exception) -> ModelError:
    what = one_line(str(error), 200).rstrip(".")
    if isinstance(error, EndpointConnectionError | HTTPClientError):
        host = urlsplit(str(error.kwargs.get("endpoint_url", ""))).netloc or "the server that issues them"
        return ModelUnreachable(f"The AWS credentials cannot be renewed: no connection to {host}. Check the network.")
    return ModelAuthFailed(f"The AWS credentials cannot be used: {what}. Sign in again (aws sso login), or set others.")
