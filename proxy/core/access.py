"""Who calls, by the signature of a call, and what each request needs of its user. Pure.

The signature covers the date alone: it is as good as a password to who sees it in the clear, for as long as its date
counts. Many clients write it in local time and call it UTC, so a date counts for more than half a day by default.

Source: DefaultAuthenticationContextBuilder.java, DefaultAuthorizationContextBuilder.java.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs
from google.protobuf.message import Message

from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.security.policies import Action, Kind, Need, of_topic
from understudy.security.users import User, UserStatus

_PUB, _SUB = frozenset({Action.PUB}), frozenset({Action.SUB})
_PUB_OR_SUB = _PUB | _SUB
WINDOW_KEY = "signatureWindowSeconds"
"""The setting that says how old a signature may be."""


@attrs.frozen
class Signed:
    """How a call is signed.

    Attributes:
        name: of the user, what clients call the access key.
        signature: hexadecimal digits.
        date: what is signed.
    """

    name: str
    signature: str = attrs.field(repr=False)
    date: str


def refused(message: str) -> ProxyError:
    """Return a refusal (40100)."""
    return ProxyError(v2.UNAUTHORIZED, message)


def read_signed(authorization: str, date: str) -> Signed:
    """Read the header fields ``authorization`` and ``x-mq-date-time``.

    Args:
        authorization: ``MQv2-HMAC-SHA1 Credential=KEY[/...], SignedHeaders=x-mq-date-time, Signature=HEX``.
        date: as it stands there.

    Raises:
        ProxyError: there is none, or it makes no sense (40100).
    """
    if not authorization:
        raise refused("username cannot be null.")
    algorithm, blank, rest = authorization.partition(" ")
    if not blank or not algorithm or not date:
        raise refused("authentication header is incorrect: send authorization with a scheme, and x-mq-date-time")
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, equals, text = part.strip().partition("=")
        if not equals:
            raise refused("authentication header is incorrect: its parts are NAME=TEXT, divided by commas")
        fields[name.strip()] = text.strip()
    name = fields.get("Credential", "").partition("/")[0]
    if not name:
        raise refused("username cannot be null.")
    return Signed(name, fields.get("Signature", ""), date)


def check_user(user: User | None, name: str) -> User:
    """Return the *user* of that *name* if it may sign in. Raises :class:`ProxyError` (40100)."""
    if user is None:
        raise refused(f"User:{name[:255]} is not found.")
    if user.status is not UserStatus.ENABLE:
        raise refused(f"User:{name} is disabled.")
    return user


def check_signature(user: User, signed: Signed) -> None:
    """Check that who signed knows the password of *user*. Raises :class:`ProxyError` (40100)."""
    expected = user.secret.digest(signed.date.encode("utf-8", "replace")).hex()
    if not hmac.compare_digest(expected.encode(), signed.signature.lower().encode("utf-8", "replace")):
        raise refused("check signature failed.")


def check_date(signed: Signed, now_s: float, window_s: float) -> None:
    """Check that a signature was made lately (differs: the reference takes one of any age).

    Args:
        signed: how the call is signed; the signature is right.
        now_s: wall time in seconds.
        window_s: how far its date may be from that, before and after; 0: any date counts.

    Raises:
        ProxyError: it is too far, or no date (40100).
    """
    if not window_s:
        return
    try:
        date = datetime.fromisoformat(signed.date)  # of RFC 3339, too, which some clients write
        away_s = now_s - (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise refused("x-mq-date-time is no date: send yyyyMMddTHHmmssZ") from None
    if abs(away_s) > window_s:
        when = f"{abs(away_s):.0f} s {'old' if away_s > 0 else 'ahead'}"
        raise refused(f"the signature is {when}, {window_s:g} s are allowed ({WINDOW_KEY}): look at the clock")


def needs_of(request: Message) -> list[Need]:
    """Return what *request* needs of its user; each of them."""
    return _NEEDS[type(request)](request)


def _topic(resource: v2.Resource, actions: frozenset[Action]) -> Need:
    kind, name = of_topic(resource.name)
    return Need(kind, name, actions if kind is Kind.TOPIC else _SUB)


def _group(resource: v2.Resource) -> Need:
    return Need(Kind.GROUP, resource.name, _SUB)


def _publish(request: Any) -> list[Need]:
    return [_topic(request.topic, _PUB)]


def _both(request: Any) -> list[Need]:
    return [_group(request.group), _topic(request.topic, _SUB)]


def _group_if_any(request: Any) -> list[Need]:
    return [_group(request.group)] if request.group.name else []


def _send(request: v2.SendMessageRequest) -> list[Need]:
    return list({each.topic.name: _topic(each.topic, _PUB) for each in request.messages}.values())


def _receive(request: v2.ReceiveMessageRequest) -> list[Need]:
    return [_group(request.group), _topic(request.message_queue.topic, _SUB)]


def _settings(request: v2.Settings) -> list[Need]:
    if request.WhichOneof("pub_sub") != "subscription":
        return [_topic(each, _PUB) for each in request.publishing.topics]
    subscription = request.subscription
    return [_group(subscription.group), *(_topic(each.topic, _SUB) for each in subscription.subscriptions)]


_NEEDS: dict[type[Message], Callable[[Any], list[Need]]] = {
    v2.QueryRouteRequest: lambda request: [_topic(request.topic, _PUB_OR_SUB)],
    v2.QueryAssignmentRequest: _both,
    v2.SendMessageRequest: _send,
    v2.RecallMessageRequest: _publish,
    v2.EndTransactionRequest: _publish,
    v2.ReceiveMessageRequest: _receive,
    v2.AckMessageRequest: _both,
    v2.ForwardMessageToDeadLetterQueueRequest: _both,
    # Differs: the reference looks at the group alone, and a reader of one topic could keep another one's messages away.
    v2.ChangeInvisibleDurationRequest: _both,
    v2.HeartbeatRequest: _group_if_any,
    v2.NotifyClientTerminationRequest: _group_if_any,
    v2.Settings: _settings,
}
