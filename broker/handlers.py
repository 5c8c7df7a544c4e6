"""Who answers which request of a broker, on which port, and with how many at a time.

Source: BrokerController.java (registerProcessor, initializeResources).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker import admin
from understudy.broker.first_read_questions import FirstReadAnswers
from understudy.broker.logical.offsets import LogicalOffsets
from understudy.broker.parts import (
    end_transaction_parts,
    lock_parts,
    offset_parts,
    recall_parts,
    reply_parts,
    send_back_parts,
)
from understudy.broker.processors.end_transaction import LANE as END_TRANSACTION_LANE
from understudy.broker.processors.end_transaction import EndTransactionProcessor
from understudy.broker.processors.lock import LANE as LOCK_LANE
from understudy.broker.processors.lock import LockProcessor
from understudy.broker.processors.queue_offsets import OffsetProcessor
from understudy.broker.processors.recall import RecallProcessor
from understudy.broker.processors.reply import LANE as REPLY_LANE
from understudy.broker.processors.reply import ReplyProcessor
from understudy.broker.processors.send_back import LANE as SEND_BACK_LANE
from understudy.broker.processors.send_back import SendBackProcessor
from understudy.broker.processors.send_back_copies import RetryCopies
from understudy.remoting.codes import RequestCode
from understudy.remoting.dispatch import LARGE_BODIES
from understudy.remoting.limits import LaneLimits

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

PULL_CODES = frozenset(
    {
        int(code)
        for code in (
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
        )
    }
)
"""Codes the fast port does not serve."""


def register_handlers(broker: Broker) -> None:
    """Have *broker*'s ports answer every request it knows, within the limits of its configuration."""
    server, config = broker.server, broker.options.broker
    for processor in (
        broker.send,
        SendBackProcessor(
            send_back_parts(broker),
            RetryCopies(broker.node, broker.groups, broker.store, broker.delays, broker.gate),
            server.lane(SEND_BACK_LANE),
        ),
        ReplyProcessor(reply_parts(broker)),
        RecallProcessor(recall_parts(broker)),
        broker.pull,
        broker.pops,
        FirstReadAnswers(broker.identity, broker.offsets),
        broker.members,
        EndTransactionProcessor(end_transaction_parts(broker), server.lane(END_TRANSACTION_LANE)),
        LogicalOffsets(
            broker.node,
            broker.queue_mappings,
            broker.forwards,
            broker.logical_lane,
            OffsetProcessor(offset_parts(broker)),
        ),
        LockProcessor(lock_parts(broker), server.lane(LOCK_LANE), server.lane(LARGE_BODIES)),
    ):
        processor.register(server)
    admin.register_all(broker, server)
    server.lane(
        REPLY_LANE, LaneLimits(config.process_reply_message_thread_pool_nums, config.reply_thread_pool_queue_capacity)
    )
    server.lane(
        END_TRANSACTION_LANE,
        LaneLimits(
            config.end_transaction_thread_pool_nums,
            config.end_transaction_pool_queue_capacity,
            config.wait_time_mills_in_transaction_queue / 1000,
        ),
    )
    administration = LaneLimits(
        config.admin_broker_thread_pool_nums,
        config.admin_broker_thread_pool_queue_capacity,
        config.wait_time_mills_in_admin_broker_queue / 1000,
    )
    # Lanes of their own for questions that wait for clients or name servers, so that changes do not wait behind.
    server.lane("admin", administration)
    server.lane("relay", administration)
    server.lane(
        "assignment",
        LaneLimits(config.load_balance_processor_thread_pool_nums, config.load_balance_thread_pool_queue_capacity),
    )
    server.on_close += [broker.members.closed, broker.pops.hold.drop]
    server.handed_on = broker.end_requests
    server.answered = broker.send.end_receive
    if broker.fast_server is not None:
        server.copy_to(broker.fast_server, without=PULL_CODES)
        broker.fast_server.on_close.append(broker.members.closed)
