"""Questions of a returning broker to another one of its group."""

from __future__ import annotations

from understudy.broker.broker import Broker
from understudy.container.preonline.handshake import Member
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request

QUESTION_TIMEOUT_MS = 3_000


class RefusedError(Exception):
    """Another broker did not do what it was asked for."""


async def ask(
    broker: Broker,
    member: Member,
    code: RequestCode,
    ext: dict[str, str] | None = None,
    timeout_ms: int = QUESTION_TIMEOUT_MS,
) -> Command:
    """Return the answer of *member*. Raises ``RemotingError``, :class:`RefusedError`.

    Whoever comes back after the fault of another host may still have connections to it that are dead without a sign.

    Args:
        broker: the one that comes back; its client is used.
        member: of its group, who is asked.
        code: of the request.
        ext: fields of its header.
        timeout_ms: longest wait in milliseconds.
    """
    answer = await broker.client.invoke_repeatable(member.address, request(code, ext), timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(f"{member.address} answered {code.name} with {answer.code}: {answer.remark}")
    return answer
