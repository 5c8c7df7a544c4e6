"""A consumer's running report as text (the sections of ConsumerRunningInfo.java)."""

from __future__ import annotations

from typing import Any

from understudy.mqclient.offsets import parse_queue

_SUBSCRIPTION_ROW = "%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s"
_OFFSET_HEAD = "%-64s  %-32s  %-4s  %-20s"
_OFFSET_ROW = "%-32s  %-32s  %-4d  %-20d"
_DETAIL_ROW = "%-64s  %-32s  %-4d  %s"
_RATE_HEAD = "%-64s  %14s %14s %14s %14s %18s %25s"
_RATE_ROW = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d"
_QUEUE_FIELDS = (
    "commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB",
    "transactionMsgMinOffset", "transactionMsgMaxOffset", "transactionMsgCount", "locked", "tryUnlockTimes",
    "lastLockTimestamp", "droped", "lastPullTimestamp", "lastConsumeTimestamp",
)  # fmt: skip


def report_lines(report: dict[str, Any]) -> list[str]:
    """Return *report* as lines for people."""
    lines = ["#Consumer Properties#"]
    lines += [f"{name:<40}: {value}" for name, value in (report.get("properties") or {}).items()]
    lines += ["", "", "#Consumer Subscription#"]
    for number, entry in enumerate(report.get("subscriptionSet") or (), 1):
        filtered = str(bool(entry.get("classFilterMode"))).lower()
        lines.append(_SUBSCRIPTION_ROW % (number, entry.get("topic"), filtered, entry.get("subString")))
    queues = sorted((parse_queue(key), entry) for key, entry in (report.get("mqTable") or {}).items())
    lines += ["", "", "#Consumer Offset#", _OFFSET_HEAD % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset")]
    lines += [
        _OFFSET_ROW % (queue.topic, queue.broker_name, queue.queue_id, entry.get("commitOffset", -1))
        for queue, entry in queues
    ]
    lines += ["", "", "#Consumer MQ Detail#", _OFFSET_HEAD % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")]
    for queue, entry in queues:
        detail = ", ".join(f"{name}={_plain(entry.get(name))}" for name in _QUEUE_FIELDS)
        lines.append(_DETAIL_ROW % (queue.topic, queue.broker_name, queue.queue_id, f"ProcessQueueInfo [{detail}]"))
    lines += ["", "", "#Consumer RT&TPS#"]
    lines.append(
        _RATE_HEAD
        % (
            "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS",
            "#ConsumeFailedMsgsInHour",
        )
    )  # fmt: skip
    for topic, entry in sorted((report.get("statusTable") or {}).items()):
        rates = [float(entry.get(name) or 0) for name in ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS")]
        failed = float(entry.get("consumeFailedTPS") or 0), int(entry.get("consumeFailedMsgs") or 0)
        lines.append(_RATE_ROW % (topic, *rates, *failed))
    lines += ["", "", "#User Consume Info#"]
    lines += [f"{name}: {value}" for name, value in (report.get("userConsumerInfo") or {}).items()]
    if report.get("jstack"):
        lines += ["", "", "#Consumer jstack#", *str(report["jstack"]).splitlines()]
    return lines


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
