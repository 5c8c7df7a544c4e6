"""What can go wrong for a user of the client."""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything the client raises on purpose; the message is one line for a person."""


class InvalidMessageError(ClientError):
    """The message, topic or group breaks a rule of the protocol; nothing was sent."""


class InvalidOptionError(ClientError, ValueError):
    """An option, a listener or an argument cannot work; nothing was opened or sent."""


class RouteNotFoundError(ClientError):
    """The name server knows no broker for the topic, or none of them can take or give its messages now."""


class BrokerError(ClientError):
    """A server refused a request.

    Attributes:
        code: its response code.
        remark: its explanation.
        address: ``host:port`` of the server.
    """

    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} answered {code}: {remark.splitlines()[0] if remark else 'no explanation'}")
        self.code = code
        self.remark = remark
        self.address = address


class SendFailedError(ClientError):
    """No broker took the message. The last cause is chained; the message may still have been stored by one of them."""


class NoReplyError(ClientError):
    """A request was stored, but no reply came in time."""


class NotConnectedError(ClientError):
    """A server could not be reached, went away, or did not answer in time."""


class RecordDamagedError(ClientError):
    """A stored record failed its checks and was not delivered."""
