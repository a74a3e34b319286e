"""The circuit breakers of one tool: its own, and the one that it shares with the other tools of its server.

A tool whose breaker is open is withdrawn: the model is not offered it, so that it does not try it in a loop. A failure
is what `ToolResult.retryable` marks: the tool could not be reached, broke off or did not answer in time. A tool that
answers with an error works.
"""

from collections.abc import Callable

from holodeck.core.tools import ToolResult
from holodeck.resilience.breaker import Admission, CircuitBreaker, Phase


class ToolBreakers:
    """`make` gives the tool's own breaker at its first call: tools that are never called have none."""

    def __init__(self, server: CircuitBreaker, make: Callable[[], CircuitBreaker]) -> None:
        self.server = server
        self._make = make
        self.tool: CircuitBreaker | None = None

    @property
    def open(self) -> bool:
        return self.server.phase is Phase.OPEN or (self.tool is not None and self.tool.phase is Phase.OPEN)

    @property
    def retry_after(self) -> float:
        """Seconds until a call may be admitted again."""
        own = self.tool.retry_after if self.tool is not None else 0.0
        return max(own, self.server.retry_after)

    def admit(self) -> "CallAdmission | None":
        """Permission for one call; None when either breaker refuses it."""
        tool = self.tool
        if tool is None:
            tool = self.tool = self._make()
        on_trial = not tool.closed
        of_tool = tool.admit()
        if of_tool is None:
            return None
        of_server = self.server.admit()
        if of_server is None:
            of_tool.withdrawn()
            return None
        return CallAdmission(of_tool, of_server, on_trial=on_trial)


class CallAdmission:
    """One admitted call. `settle` reports its outcome to both breakers."""

    def __init__(self, tool: Admission, server: Admission, *, on_trial: bool) -> None:
        self._tool, self._server, self._on_trial = tool, server, on_trial

    def settle(self, result: ToolResult | None) -> None:
        """None means that the call was given up before its outcome was known."""
        if result is None:
            self._tool.withdrawn()
            self._server.withdrawn()
        elif not (result.failed and result.retryable):
            self._tool.succeeded()
            self._server.succeeded()
        else:
            self._tool.failed(result.text)
            if self._on_trial:  # the tool was known to fail: that it still does proves nothing about the server
                self._server.withdrawn()
            else:
                self._server.failed(result.text)
