"""Which parts of a broker its request handlers get: all that they can reach of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.processors.end_transaction import EndTransactionParts
from understudy.broker.processors.lock import LockParts
from understudy.broker.processors.members import MemberParts
from understudy.broker.processors.pull import PullParts
from understudy.broker.processors.queue_offsets import OffsetParts
from understudy.broker.processors.recall import RecallParts
from understudy.broker.processors.reply import ReplyParts
from understudy.broker.processors.send import SendParts
from understudy.broker.processors.send_admission import AdmissionParts
from understudy.broker.processors.send_back import SendBackParts
from understudy.broker.transactions.service import TransactionParts

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def admission_parts(broker: Broker) -> AdmissionParts:
    """Return what lets sends in."""
    return AdmissionParts(
        identity=broker.identity,
        options=broker.options,
        random=broker.world.random,
        topics=broker.topics,
        groups=broker.groups,
        locks=broker.locks,
        stats=broker.stats,
        delay_levels=len(broker.delay_levels_ms),
        timer_door=broker.timer.door,
    )


def send_parts(broker: Broker) -> SendParts:
    """Return what takes sends."""
    return SendParts(
        identity=broker.identity,
        options=broker.options,
        world=broker.world,
        store=broker.store,
        stats=broker.stats,
        acknowledgements=broker.acknowledgements,
        replication=broker.replication,
        count_half=broker.transactions.count_of,
        taken_before=broker.transactions.taken_before,
    )


def end_transaction_parts(broker: Broker) -> EndTransactionParts:
    """Return what takes decisions about half messages."""
    return EndTransactionParts(
        identity=broker.identity,
        clock=broker.world.clock,
        transactions=broker.transactions,
        acknowledgements=broker.acknowledgements,
        replication=broker.replication,
        sync_flush=broker.sync_flush,
        may_store=lambda: broker.session.rules.may_store,
        acts=lambda: broker.session.rules.active,
        decide_elsewhere=lambda decision: broker.session.rules.end_transaction(decision),
    )


def transaction_parts(broker: Broker) -> TransactionParts:
    """Return what keeps half messages."""
    return TransactionParts(
        identity=broker.identity,
        options=broker.options,
        clock=broker.world.clock,
        store=broker.store,
        own_log=broker.own_log,
        offsets=broker.offsets,
        topics=broker.topics,
        producers=broker.producers,
        stats=broker.stats,
        delay_levels=len(broker.delay_levels_ms),
        timer_door=broker.timer.door,
        may_store=lambda: broker.session.rules.may_store,
    )


def recall_parts(broker: Broker) -> RecallParts:
    """Return what takes timer messages back."""
    return RecallParts(
        identity=broker.identity,
        options=broker.options,
        clock=broker.world.clock,
        store=broker.store,
        topics=broker.topics,
        timer_door=broker.timer.door,
        acknowledgements=broker.acknowledgements,
        replication=broker.replication,
    )


def send_back_parts(broker: Broker) -> SendBackParts:
    """Return what takes messages back."""
    return SendBackParts(
        identity=broker.identity,
        config=broker.options.broker,
        groups=broker.groups,
        topics=broker.topics,
        store=broker.store,
        acknowledgements=broker.acknowledgements if broker.sync_flush else None,
        stats=broker.stats,
        delay_levels=len(broker.delay_levels_ms),
        random=broker.world.random,
        put_beside=lambda topics, message: broker.session.rules.put_beside(topics, message),
    )


def reply_parts(broker: Broker) -> ReplyParts:
    """Return what passes replies on."""
    return ReplyParts(
        identity=broker.identity,
        config=broker.options.broker,
        clock=broker.world.clock,
        random=broker.world.random,
        store=broker.store,
        topics=broker.topics,
        producers=broker.producers,
    )


def pull_parts(broker: Broker) -> PullParts:
    """Return what answers pulls."""
    return PullParts(
        identity=broker.identity,
        options=broker.options,
        world=broker.world,
        store=broker.store,
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        consumers=broker.consumers,
        broadcasts=broker.broadcasts,
        conditions=broker.conditions,
        hold=broker.hold,
        stats=broker.stats,
        replication=broker.replication,
        presence=broker.presence,
        first_reads=broker.first_reads,
        note_commit=broker.tables.offsets.note_commit,
    )


def member_parts(broker: Broker) -> MemberParts:
    """Return what knows the clients."""
    return MemberParts(
        config=broker.options.broker,
        world=broker.world,
        topics=broker.topics,
        groups=broker.groups,
        producers=broker.producers,
        consumers=broker.consumers,
        conditions=broker.conditions,
        consumer_filters=broker.consumer_filters,
        hold=broker.hold,
        locks=broker.locks,
    )


def offset_parts(broker: Broker) -> OffsetParts:
    """Return what answers for offsets."""
    return OffsetParts(
        identity=broker.identity,
        config=broker.options.broker,
        store=broker.store,
        topics=broker.topics,
        groups=broker.groups,
        offsets=broker.offsets,
        presence=broker.presence,
        note_commit=broker.tables.offsets.note_commit,
    )


def lock_parts(broker: Broker) -> LockParts:
    """Return what locks queues."""
    return LockParts(
        identity=broker.identity,
        options=broker.options,
        world=broker.world,
        client=broker.client,
        locks=broker.locks,
        member_group=broker.member_group,
    )
