"""Messages as the reference's tool prints them, and as JSON."""

from __future__ import annotations

import base64
from typing import Any

from understudy.mqadmin.text import map_text, millis_text
from understudy.mqclient.admin.messages import Track
from understudy.mqclient.message import ReceivedMessage

_FIELD = "%-20s %s"


def message_line(message: ReceivedMessage, charset: str, *, with_body: bool) -> str:
    """Return one message on one line."""
    numbers = ", ".join(str(byte if byte < 128 else byte - 256) for byte in message.body)
    shown = message.body.decode(charset, "replace") if with_body else "NOT PRINT BODY"
    return (
        f"MSGID: {message.message_id} MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, "
        f"storeSize={message.stored_bytes}, queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, "
        f"bornTimestamp={message.born_timestamp_ms}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp_ms}, storeHost=/{message.store_host}, "
        f"msgId={message.offset_message_id}, commitLogOffset={message.commit_log_offset}, "
        f"bodyCRC={message.body_crc}, reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={map_text(message.properties)}, body=[{numbers}], transactionId='null'}}] BODY: {shown}"
    )


def message_lines(message: ReceivedMessage, body: str, *, offset_id: bool = True) -> list[str]:
    """Return one message field by field; *body* is its text as the operator wants to see it."""
    fields: list[tuple[str, Any]] = [("OffsetID:", message.offset_message_id)] if offset_id else []
    fields += [
        ("Topic:", message.topic),
        ("Tags:", f"[{message.tags or 'null'}]"),
        ("Keys:", f"[{message.keys or 'null'}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.commit_log_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", millis_text(message.born_timestamp_ms)),
        ("Store Timestamp:", millis_text(message.store_timestamp_ms)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", map_text(message.properties)),
        ("Message Body:", body),
    ]
    return [_FIELD % field for field in fields]


def track_line(track: Track) -> str:
    """Return what one group made of a message."""
    explanation = track.explanation if track.explanation is not None else "null"
    return f"MessageTrack [consumerGroup={track.group}, trackType={track.state}, exceptionDesc={explanation}]"


def message_json(message: ReceivedMessage, tracks: list[Track] | None = None) -> dict[str, Any]:
    """Return one message for ``--json``; a body that is no text goes as base64."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    data = {
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "storeSize": message.stored_bytes,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        **body,
    }
    if tracks is not None:
        data["tracks"] = [
            {"consumerGroup": track.group, "trackType": track.state, "exceptionDesc": track.explanation}
            for track in tracks
        ]
    return data
