"""A long conversation with one broker: every answer equals the one a real 5.4.0 broker gave to the same requests.

``answers.json`` was captured from a fresh Java broker: requests in order over one connection, with the answers. Host
addresses and the port inside message ids are masked in it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from admin_rig import DATA, unordered

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.format import json_dialect
from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request
from understudy.runtime.world import real_world

RECORDS = {12, 33}
"""Codes that answer with stored records: their lengths are compared."""

BETTER = {
    'updating with "traceOn=maybe"': "a value that cannot be read is refused, not ignored",
    'updating with "fileReservedTime=soon"': "a value that cannot be read is refused, not ignored",
    'page of topics without "topicSeq"': "begins with the first page instead of failing",
}


def difference_of(step: dict[str, Any]) -> str | None:
    """Return the name of a wanted difference that *step* shows."""
    if step["code"] == 25 and step["body"].strip() in ("traceOn=maybe", "fileReservedTime=soon"):
        return f'updating with "{step["body"].strip()}"'
    if step["code"] == 21 and step["ext"] == {"maxTopicNum": "1"}:
        return 'page of topics without "topicSeq"'
    return None


def masked(text: str, port: int) -> str:
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text).replace(f"{port:04X}", "PORT")
    text = re.sub(r'"(counter|delayTime)":\d+', r'"\1":0', text)  # history of other tables, and ages
    text = re.sub(r"\d{4}-\d\d-\d\d#[0-9:]+", "TIME", text)
    return re.sub(r"\b1[5-9]\d{11}\b", "TIME", text)


def comparable(step: dict[str, Any], answer: dict[str, Any], port: int) -> dict[str, Any]:
    body = re.sub(r',"resetStampTable":{.*}}}$', "}", masked(answer["body"], port))  # ours alone, see offsets.py
    is_json = body.startswith(("{", "["))
    remark = answer["remark"]
    # Texts of Java exceptions are no part of the protocol.
    if remark is not None and ("Exception" in remark or "Cannot invoke" in remark or answer["code"] == 1):
        remark = "a reason" if remark.strip() else remark
    return {
        "code": answer["code"],
        "remark": None if remark is None else masked(remark, port),
        "ext": {key: masked(text, port) for key, text in (answer["ext"] or {}).items()},
        "body": unordered(json_dialect.loads(body.replace("TIME", "0") if is_json else json.dumps(body))),
    }


def as_captured(step: dict[str, Any], answer: Command) -> dict[str, Any]:
    body = f"{len(answer.body)} bytes" if step["code"] in RECORDS else answer.body.decode()
    return {"code": answer.code, "remark": answer.remark, "ext": answer.ext, "body": body}


@pytest.mark.covers("IT-22")
async def test_a_conversation_with_a_real_broker(tmp_path: Path, nursery: trio.Nursery) -> None:
    steps = json.loads((DATA / "answers.json").read_text())
    options, _ = BrokerOptions.from_properties(
        {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerName": "broker-a",
            "traceOn": "false",  # as the captured one
            "mappedFileSizeCommitLog": str(4 << 20),
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
        },
        machine=Machine("vm", "127.0.0.1", str(tmp_path / "store")),
    )
    broker: Broker = await nursery.start(host_broker, real_world(), options)
    port = broker.identity.port
    differences = set()

    async with open_client(real_world()) as client:
        for number, step in enumerate(steps):
            question = request(step["code"], step["ext"], step["body"].encode())
            answer = await client.invoke(broker.identity.address, question, 10_000)
            ours = comparable(step, as_captured(step, answer), port)
            theirs = comparable(step, step["answer"], port)
            if ours != theirs:
                name = difference_of(step)
                assert name is not None, f"step {number}: {step['code']} {step['ext']}\nours   {ours}\ntheirs {theirs}"
                differences.add(name)

    assert differences == BETTER.keys()
    nursery.cancel_scope.cancel()
