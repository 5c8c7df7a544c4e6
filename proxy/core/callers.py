"""Who calls: what the header fields of a call say of its client."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.command import LANGUAGES

CLIENT_ID, REQUEST_ID = "x-mq-client-id", "x-mq-request-id"
_LONGEST_ID = 512
_OF_GRPC = {"GOLANG": "GO", "DOT_NET": "DOTNET"}
"""Names of languages in gRPC that have another one in remoting."""


@attrs.frozen
class Caller:
    """One client.

    Attributes:
        client_id: its name, unique among clients.
        language: its language, as remoting names it.
        version: its version, as text.
        request_id: of this call, for logs.
        host: where it comes from.
        user: who signed the call; ``None`` where nobody has to.
    """

    client_id: str
    language: str
    version: str
    request_id: str
    host: str
    user: str | None = None


def caller_of(metadata: Mapping[str, str], host: str) -> Caller:
    """Read the header fields of a call.

    Fields that only a server may set (``rpc-remote-address``, ``x-mq-channel-id`` ...) are not read. Differs: the
    reference believes a client that sends them.

    Args:
        metadata: header fields by name.
        host: address of the client.

    Raises:
        ProxyError: it has no id (40017).
    """
    client_id = metadata.get(CLIENT_ID, "").strip()
    if not client_id or len(client_id) > _LONGEST_ID:
        raise ProxyError(
            v2.CLIENT_ID_REQUIRED, f"client id cannot be empty or longer than {_LONGEST_ID}: send x-mq-client-id"
        )
    named = metadata.get("x-mq-language", "").upper()
    language = _OF_GRPC.get(named, named)
    return Caller(
        client_id,
        language if language in LANGUAGES else "OTHER",
        metadata.get("x-mq-client-version", "")[:64],
        metadata.get(REQUEST_ID, "")[:64],
        host,
    )
