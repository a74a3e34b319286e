"""What can go wrong between us and an HTTP server. The texts are for logs: none holds what was sent or a key."""


class HttpError(Exception):
    """The exchange failed."""


class Unsendable(HttpError):
    """No request can be made of this URL, or of these headers."""


class NoHost(HttpError):
    """The host name is unknown, or no resolver answered."""


class NoConnection(HttpError):
    """Nothing answers at the address, or not in time."""


class NoProxy(HttpError):
    """The proxy that the environment names cannot be reached, or does not let us through."""


class NoTrust(HttpError):
    """No secure connection: the certificate was not accepted, or the other side does not speak TLS."""


class NotHttp(HttpError):
    """What came is not HTTP, or not in a form that we take."""


class ConnectionBroken(HttpError):
    """It ended before the answer did."""
