"""Errors between us and an HTTP server. The texts are for logs: none contains a key or what was sent."""


class HttpError(Exception):
    """A request could not be sent, or its response could not be read."""


class Unsendable(HttpError):
    """The URL or the headers make no valid request."""


class NoHost(HttpError):
    """The host name is unknown, or no resolver answered."""


class NoConnection(HttpError):
    """Nothing answers at the address, or not in time."""


class NoProxy(HttpError):
    """The proxy that the environment names cannot be reached, or does not let us through."""


class NoTrust(HttpError):
    """TLS failed: the certificate was rejected, or the peer does not speak TLS."""


class NotHttp(HttpError):
    """The answer is not HTTP, or not in a form that we accept."""


class ConnectionBroken(HttpError):
    """The connection ended before the answer did."""
