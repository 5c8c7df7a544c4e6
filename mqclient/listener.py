"""What an application gives a push consumer, and what it gets to see."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

import attrs
import msgspec

from understudy.format.names import TRACE_TOPIC
from understudy.mqclient.allocation import AVERAGELY, Strategy
from understudy.mqclient.errors import InvalidOptionError
from understudy.mqclient.heartbeat import ConsumeFrom, MessageModel
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.options import at_least, topic_name
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import SessionOptions
from understudy.mqclient.window import WindowLimits
from understudy.runtime.log import get_logger

log = get_logger("mqclient.listener")


class ConsumeResult(Enum):
    """What a listener says of a batch; returning nothing means success, raising means later."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


class ConsumeContext(msgspec.Struct):
    """Beside the messages: where they come from, and knobs for this batch.

    Attributes:
        queue: the queue of the batch.
        delay_level: when the batch fails: level of the wait before the next try, 0 lets the broker grow it, -1 sends
            the messages to the dead letter topic at once. Not for ordered consumption.
        succeeded: when the batch succeeds only in part: how many from the front; ``None`` means all.
        suspend_ms: when an ordered batch fails: wait before it is tried again.
    """

    queue: MessageQueue
    delay_level: int = 0
    succeeded: int | None = None
    suspend_ms: float = 1_000


OnError = Callable[[Exception, ReceivedMessage], None]
"""Hears of what went wrong with a message. Must not wait."""
INTERRUPTS = (KeyboardInterrupt, SystemExit)
"""What ends the program also when it is raised while a listener runs: the consumer is closed first."""
Listener = Callable[[Sequence[ReceivedMessage], ConsumeContext], Awaitable[ConsumeResult | None]]


@attrs.frozen
class PushConsumerOptions:
    """How a push consumer works.

    Attributes:
        model: members of the group share the messages, or each gets all of them.
        ordered: messages of one queue are consumed one batch after the other, under a lock at the broker.
        consume_from: where a new group starts.
        consume_timestamp_ms: wall time for ``ConsumeFrom.TIMESTAMP``.
        strategy: who gets which queue; the same for all members.
        consume_tasks: how many batches are consumed at the same time.
        consume_batch: most messages in one batch.
        consume_timeout_ms: a listener that takes longer is cancelled and its batch tried again later.
        pull_batch: most messages of one pull.
        limits: when pulling of a queue pauses.
        hold_ms: how long a broker keeps a pull when there is nothing.
        max_reconsume_times: failures after which a message goes to the dead letter topic; -1 means 16, and for ordered
            consumption for ever.
        persist_ms: how often progress is stored.
        rebalance_ms: how often queues are compared although nothing happened.
        lock_ms: how often the locks of ordered consumption are renewed.
        pull_retry_ms: pause after a failed pull.
        close_timeout_ms: how long leaving waits for listeners.
        take_damaged: give the listener also messages whose bytes cannot be read, with the raw body and
            :attr:`~understudy.mqclient.message.ReceivedMessage.damage`; otherwise they count as failed.
        on_error: called with what went wrong and the first message of its batch: a listener that raised, answered
            something else than it may, or took too long; a message that cannot be read. Must not wait.
        enable_message_trace: write into *trace_topic* what was consumed, for ``mqadmin queryMsgTraceById``.
        trace_topic: brokers with ``traceTopicEnable`` have the default one.
        offset_folder: where a broadcasting consumer keeps its progress.
        session: see :class:`SessionOptions`. A broadcasting consumer must have a ``client_id`` of its own that stays
            the same, for its progress is found by it.

    Raises:
        InvalidOptionError: a value that cannot work.
    """

    model: MessageModel = MessageModel.CLUSTERING
    ordered: bool = False
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    consume_timestamp_ms: int = 0
    strategy: Strategy = AVERAGELY
    consume_tasks: int = attrs.field(default=20, validator=at_least(1))
    consume_batch: int = attrs.field(default=1, validator=at_least(1))
    consume_timeout_ms: float = attrs.field(default=15 * 60_000, validator=at_least(1))
    pull_batch: int = attrs.field(default=32, validator=at_least(1))
    limits: WindowLimits = attrs.field(factory=WindowLimits)
    hold_ms: int = attrs.field(default=15_000, validator=at_least(0))
    max_reconsume_times: int = attrs.field(default=-1, validator=at_least(-1))
    persist_ms: float = attrs.field(default=5_000, validator=at_least(1))
    rebalance_ms: float = attrs.field(default=20_000, validator=at_least(1))
    lock_ms: float = attrs.field(default=20_000, validator=at_least(1))
    pull_retry_ms: float = attrs.field(default=3_000, validator=at_least(1))
    close_timeout_ms: float = attrs.field(default=5_000, validator=at_least(0))
    take_damaged: bool = False
    on_error: OnError | None = None
    enable_message_trace: bool = False
    trace_topic: str = attrs.field(default=TRACE_TOPIC, validator=topic_name)
    offset_folder: str = "rocketmq_offsets"
    session: SessionOptions = attrs.field(factory=SessionOptions)

    def __attrs_post_init__(self) -> None:
        if self.model is MessageModel.BROADCASTING:
            name = self.session.client_id
            if name is None:
                raise InvalidOptionError(
                    "client_id=None: a broadcasting consumer finds its progress by it and would begin anew each time; "
                    "give it a name of its own that stays the same, session=SessionOptions(client_id=...)"
                )
            if "/" in name or "\0" in name or name in ("", ".", ".."):
                raise InvalidOptionError(f"client_id={name!r}: expected a name that a folder can have")


class Role(Enum):
    """What an application gives to be called: its name, and what it is called with."""

    LISTENER = ("listener", "messages", "context")
    POP_LISTENER = ("listener", "message")
    CHECK = ("check", "message")


def check_listener(listener: object, role: Role = Role.LISTENER) -> None:
    """Refuse what could not be awaited as it will be called.

    Args:
        listener: what the user gave.
        role: what it is for.

    Raises:
        InvalidOptionError: it is no ``async`` function, or takes other arguments.
    """
    if not _is_async(listener, role):
        name = role.value[0]
        raise InvalidOptionError(f"the {name} {listener!r} is no async function: write `async def` before it")
    _check_arguments(listener, role)


def check_plain_listener(listener: object, role: Role = Role.LISTENER) -> None:
    """Refuse what could not be called in a thread, see :func:`check_listener`.

    Raises:
        InvalidOptionError: it is an ``async`` function, or takes other arguments.
    """
    if _is_async(listener, role):
        name = role.value[0]
        raise InvalidOptionError(f"the {name} {listener!r} is an async function: this client calls plain ones")
    _check_arguments(listener, role)


def checked_result(returned: object) -> ConsumeResult:
    """Return what a listener's answer means. Raises :class:`InvalidOptionError` when it may not answer so."""
    if returned is None:
        return ConsumeResult.SUCCESS
    if not isinstance(returned, ConsumeResult):
        raise InvalidOptionError(
            f"the listener returned {returned!r}: expected nothing, ConsumeResult.SUCCESS or ConsumeResult.LATER; the "
            "messages are tried again later"
        )
    return returned


def tell_error(on_error: OnError | None, error: Exception, first: ReceivedMessage) -> None:
    """Call *on_error*, if there is one; what it raises goes into the log.

    Args:
        on_error: of the options.
        error: what went wrong.
        first: the first message that it is about.
    """
    if on_error is not None:
        try:
            on_error(error, first)
        except Exception as again:
            log.error("on_error failed", exc=again, topic=first.topic, error=repr(again))


def _is_async(listener: object, role: Role) -> bool:
    name = role.value[0]
    if inspect.isclass(listener):
        raise InvalidOptionError(f"the {name} {listener!r} is a class, and no function: make an object of it")
    if not callable(listener):
        raise InvalidOptionError(f"the {name} is {listener!r}, which cannot be called")
    call = _call_of(listener)
    return inspect.iscoroutinefunction(call.func if isinstance(call, functools.partial) else call)


def _call_of(listener: object) -> Callable[..., object]:
    if inspect.isroutine(listener) or isinstance(listener, functools.partial):
        return listener
    found: Callable[..., object] = getattr(listener, "__call__")  # noqa: B004, B009  # its signature is wanted
    return found


def _check_arguments(listener: object, role: Role) -> None:
    name, *takes = role.value
    try:
        inspect.signature(_call_of(listener)).bind(*takes)
    except TypeError:
        count = "one argument" if len(takes) == 1 else "two arguments"
        raise InvalidOptionError(f"the {name} {listener!r} must take {count}: {' and '.join(takes)}") from None
    except ValueError:  # a signature that cannot be had: the first call will tell
        return
