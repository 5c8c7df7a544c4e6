"""What can go wrong with a call over the network, seen from the caller."""

from __future__ import annotations


class RemotingError(Exception):
    """A call that got no answer. ``address`` names the peer."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectFailedError(RemotingError):
    """No connection could be made; the request was not sent."""


class ConnectionLostError(RemotingError):
    """The connection ended before the answer came; the request may or may not have been executed."""


class InvokeTimeoutError(RemotingError):
    """No answer in time; the request may or may not have been executed."""
