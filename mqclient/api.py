"""Everything an application needs, in one place to import from."""

from understudy.mqclient.allocation import (
    AVERAGELY,
    BY_CIRCLE,
    CONSISTENT_HASH,
    Strategy,
    by_config,
    consistent_hash,
    nearby,
)
from understudy.mqclient.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    InvalidOptionError,
    NoReplyError,
    NotConnectedError,
    RecordDamagedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.heartbeat import ConsumeFrom, MessageModel
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, Listener, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer, run_pop_listener
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import Producer, ProducerOptions, SendResult, SendStatus, open_producer
from understudy.mqclient.pull import PullResult, PullStatus
from understudy.mqclient.pull_consumer import PullConsumer, PullConsumerOptions, open_pull_consumer
from understudy.mqclient.push_consumer import PushConsumer, open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import LZ4, ZLIB, ZSTD
from understudy.mqclient.sending import BatchesFailedError
from understudy.mqclient.session import SessionOptions
from understudy.mqclient.transactions import (
    TransactionProducer,
    TransactionResult,
    TransactionState,
    open_transaction_producer,
)
from understudy.mqclient.window import WindowLimits
from understudy.runtime.portal import PortalClosedError
from understudy.runtime.world import World, real_world
from understudy.security.signature import Credentials

__all__ = [
    "AVERAGELY",
    "BY_CIRCLE",
    "CONSISTENT_HASH",
    "LZ4",
    "ZLIB",
    "ZSTD",
    "BatchesFailedError",
    "BrokerError",
    "ClientError",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "InvalidMessageError",
    "InvalidOptionError",
    "Listener",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NoReplyError",
    "NotConnectedError",
    "PopConsumer",
    "PopConsumerOptions",
    "PoppedMessage",
    "PortalClosedError",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullConsumerOptions",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerOptions",
    "ReceivedMessage",
    "RecordDamagedError",
    "RouteNotFoundError",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "SessionOptions",
    "Strategy",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "WindowLimits",
    "World",
    "by_config",
    "consistent_hash",
    "message",
    "nearby",
    "open_pop_consumer",
    "open_producer",
    "open_pull_consumer",
    "open_push_consumer",
    "open_transaction_producer",
    "real_world",
    "run_pop_listener",
]
