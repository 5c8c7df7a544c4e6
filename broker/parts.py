"""Which parts of a broker its request handlers get: all that they can reach of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.processors.end_transaction import EndTransactionParts
from understudy.broker.processors.lock import LockParts
from understudy.broker.processors.members import MemberParts
from understudy.broker.processors.pull import PullParts
from understudy.broker.processors.pull_waits import PullWaits
from understudy.broker.processors.queue_offsets import OffsetParts
from understudy.broker.processors.recall import RecallParts
from understudy.broker.processors.reply import ReplyParts
from understudy.broker.processors.send import SendParts
from understudy.broker.processors.send_admission import AdmissionParts
from understudy.broker.processors.send_back import SendBackParts
from understudy.broker.transactions.checks import CheckParts, HalfChecks
from understudy.broker.transactions.log import HalfLog
from understudy.broker.transactions.reading import HalfReader
from understudy.broker.transactions.service import TransactionParts

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def admission_parts(broker: Broker) -> AdmissionParts:
    """Return what lets sends in."""
    return AdmissionParts(
        node=broker.node,
        catalog=broker.catalog,
        locks=broker.locks,
        stats=broker.stats,
        delays=broker.delays,
    )


def send_parts(broker: Broker) -> SendParts:
    """Return what takes sends."""
    return SendParts(
        node=broker.node,
        store=broker.store,
        stats=broker.stats,
        stored=broker.stored,
        transactions=broker.transactions,
    )


def end_transaction_parts(broker: Broker) -> EndTransactionParts:
    """Return what takes decisions about half messages."""
    return EndTransactionParts(
        node=broker.node,
        transactions=broker.transactions,
        stored=broker.stored,
        rules=lambda: broker.session.rules,
    )


def transaction_parts(broker: Broker) -> TransactionParts:
    """Return what keeps half messages."""
    reader = HalfReader(broker.store, broker.offsets, broker.topics)
    halves = HalfLog(broker.node, broker.store, broker.stats, reader)
    checks = CheckParts(
        node=broker.node,
        store=broker.store,
        own_log=broker.own_log,
        topics=broker.topics,
        producers=broker.producers,
        may_store=lambda: broker.session.rules.may_store,
    )
    return TransactionParts(
        node=broker.node,
        store=broker.store,
        stats=broker.stats,
        delays=broker.delays,
        halves=halves,
        checks=HalfChecks(checks, halves),
    )


def recall_parts(broker: Broker) -> RecallParts:
    """Return what takes timer messages back."""
    return RecallParts(
        node=broker.node,
        store=broker.store,
        topics=broker.topics,
        timer=broker.timer,
        stored=broker.stored,
    )


def send_back_parts(broker: Broker) -> SendBackParts:
    """Return what takes messages back."""
    return SendBackParts(
        node=broker.node,
        topics=broker.topics,
        store=broker.store,
        stored=broker.stored,
        stats=broker.stats,
        rules=lambda: broker.session.rules,
    )


def reply_parts(broker: Broker) -> ReplyParts:
    """Return what passes replies on."""
    return ReplyParts(
        node=broker.node,
        store=broker.store,
        topics=broker.topics,
        producers=broker.producers,
    )


def pull_parts(broker: Broker) -> PullParts:
    """Return what answers pulls."""
    return PullParts(
        node=broker.node,
        store=broker.store,
        catalog=broker.catalog,
        offsets=broker.tables.offsets,
        waits=PullWaits(
            config=broker.options.broker,
            hold=broker.hold,
            presence=broker.presence,
            first_reads=broker.first_reads,
            replication=broker.replication,
        ),
        stats=broker.stats,
    )


def member_parts(broker: Broker) -> MemberParts:
    """Return what knows the clients."""
    return MemberParts(
        node=broker.node,
        catalog=broker.catalog,
        producers=broker.producers,
        subscribers=broker.subscribers,
        hold=broker.hold,
        locks=broker.locks,
    )


def offset_parts(broker: Broker) -> OffsetParts:
    """Return what answers for offsets."""
    return OffsetParts(
        node=broker.node,
        store=broker.store,
        catalog=broker.catalog,
        offsets=broker.tables.offsets,
        presence=broker.presence,
    )


def lock_parts(broker: Broker) -> LockParts:
    """Return what locks queues."""
    return LockParts(
        node=broker.node,
        client=broker.client,
        locks=broker.locks,
        member_group=broker.member_group,
        presence=broker.presence,
    )
