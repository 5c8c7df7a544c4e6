"""The status that every answer carries, and what of it a broker's response code says.

Source: ResponseBuilder.java, ResponseWriter.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import ResponseCode

_OF_RESPONSE = {
    ResponseCode.SUCCESS: v2.OK,
    ResponseCode.SYSTEM_BUSY: v2.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: v2.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: v2.CONSUMER_GROUP_NOT_FOUND,
    # Differs: the reference knows these only as exceptions of its own client; a status 50001 would not tell.
    ResponseCode.TOPIC_NOT_EXIST: v2.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: v2.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.NO_PERMISSION: v2.FORBIDDEN,
}


class ProxyError(Exception):
    """A request is answered with another status than OK.

    Args:
        code: a number of the enumeration ``Code``.
        message: one sentence for a person: what is wrong, where, and what to do.
    """

    def __init__(self, code: v2.Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def status(self) -> v2.Status:
        """The status that tells it."""
        return status(self.code, self.message)


def status(code: v2.Code, message: str) -> v2.Status:
    """Return a status."""
    return v2.Status(code=code, message=message)


def ok() -> v2.Status:
    """Return the status of what went well."""
    return status(v2.OK, "OK")


def code_of_response(code: int) -> v2.Code:
    """Return what a broker's response *code* is for clients of the proxy."""
    try:
        return _OF_RESPONSE.get(ResponseCode(code), v2.INTERNAL_SERVER_ERROR)
    except ValueError:
        return v2.INTERNAL_SERVER_ERROR


def summary(statuses: Sequence[v2.Status]) -> v2.Status:
    """Return the status of an answer whose entries have *statuses*: the first, if all have one code.

    Differs: the reference tells the name of the code; clients look at this status and not at those of the entries.
    """
    if not statuses:
        return status(v2.INTERNAL_SERVER_ERROR, "the request has no entries")
    if len({each.code for each in statuses}) > 1:
        return status(v2.MULTIPLE_RESULTS, "the entries have different results: look at each")
    return status(statuses[0].code, statuses[0].message)
