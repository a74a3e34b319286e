"""Access tokens of Google Cloud, by google-auth: read from the standard credential files, renewed before they expire.

The files are those of a service account, of `gcloud auth application-default login`, of workload identity federation;
where there is none, the metadata server of a Google machine is asked. google-auth blocks, so it runs in a
thread. The thread is its own: in the default pool, a token server that does not answer would block the resolver's threads.
"""

import asyncio
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import google.auth
import requests
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from holodeck.core.text import one_line
from holodeck.errors import ModelAuthFailed, ModelError, ModelUnreachable

SECONDS = 20.0  # seconds per request to the token server; google-auth's own limit is two minutes
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_UNAUTHORIZED = 401
_SET_FILE = (
    "Set GOOGLE_APPLICATION_CREDENTIALS to the JSON file of a service account, "
    "or run gcloud auth application-default login."
)


class GoogleTokens:
    """One bearer token, shared by all requests. `file` is the credential file; None: where google-auth finds one."""

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="google credentials")
        self._credentials: Credentials | None = None
        self._session = requests.Session()
        self._session.trust_env = True  # proxies and certificates, as for all other requests

    async def headers(self, url: str, body: bytes | None) -> Mapping[str, str]:  # noqa: ARG002  a token fits every request
        credentials = self._credentials
        if credentials is None or not credentials.valid:
            credentials = await asyncio.get_running_loop().run_in_executor(self._thread, self._renewed)
        headers = {"Authorization": f"Bearer {credentials.token}"}
        if project := getattr(credentials, "quota_project_id", None):
            headers["X-Goog-User-Project"] = str(project)
        return headers

    def refused(self, headers: Mapping[str, str], status: int, text: str) -> bool:  # noqa: ARG002  the status says all
        """Drops a revoked token, so that one new token is fetched for all requests that had it."""
        if status != _UNAUTHORIZED or self._credentials is None:
            return False
        if headers.get("Authorization") == f"Bearer {self._credentials.token}":
            self._credentials.token = None  # google-auth renews what has no token
        return True

    def _renewed(self) -> Credentials:
        """Valid credentials. Concurrent requests share one renewal."""
        try:
            if self._credentials is None:
                self._credentials = self._found()
            if not self._credentials.valid:
                self._credentials.refresh(partial(Request(session=self._session), timeout=SECONDS))
        except (GoogleAuthError, OSError, ValueError) as error:
            raise self._failure(error) from error
        return self._credentials

    def _found(self) -> Credentials:
        credentials: Credentials
        if self._file is None:
            credentials, _ = google.auth.default(scopes=[SCOPE])
            return credentials
        with warnings.catch_warnings():  # google-auth warns about untrusted files; the operator chose this one
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, _ = google.auth.load_credentials_from_file(self._file, scopes=[SCOPE])
        return credentials

    def _failure(self, error: Exception) -> ModelError:
        name = Path(self._file or "").name  # clients see the error, and need not know the server's folders
        words = str(error).replace(self._file, name) if self._file else str(error)
        what = one_line(words, 200).rstrip(".")
        if isinstance(error, TransportError):
            return ModelUnreachable(
                "No connection to Google's token server, so there is no access token. Try again later."
            )
        if isinstance(error, DefaultCredentialsError) and self._file is None:
            return ModelAuthFailed(f"There are no Google credentials. {_SET_FILE}")
        if self._credentials is None:
            return ModelAuthFailed(f"The Google credentials in {name} cannot be read ({what}). {_SET_FILE}")
        return ModelAuthFailed(f"Google did not issue an access token: {what}. {_SET_FILE}")
