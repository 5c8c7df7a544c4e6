"""Every request code the reference defines has a deliberate answer from a real broker over a real socket."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from admin_rig import DATA

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.world import real_world

# What the answer to a request without header fields and body is: 0 where the request needs none.
SERVED = {
    # sends, pulls, members, offsets and locks of clients
    10: 1,
    11: 1,
    14: 1,
    15: 1,
    29: 1,
    30: 1,
    31: 1,
    32: 1,
    34: 1,
    35: 0,
    36: 1,
    37: 1,
    38: 1,
    41: 1,
    42: 1,
    46: 0,
    310: 1,
    320: 1,
    324: 1,
    325: 1,
    361: 1,
    370: 16,
    513: 29,
    # administration
    12: 1,
    17: 29,
    18: 1,
    21: 0,
    25: 0,
    26: 0,
    28: 0,
    33: 1,
    43: 0,
    45: 0,
    200: 0,
    201: 0,
    202: 1,
    203: 1,
    204: 1,
    207: 1,
    208: 1,
    215: 29,
    222: 1,
    223: 1,
    225: 1,
    300: 1,
    303: 1,
    305: 0,
    306: 0,
    307: 1,
    308: 1,
    309: 1,
    314: 1,
    315: 1,
    316: 0,
    317: 0,
    321: 1,
    323: 1,
    328: 0,
    329: 0,
    343: 1,
    345: 1,
    351: 1,
    352: 1,
    353: 1,
    354: 0,
    355: 1,
    400: 1,
    401: 1,
    402: 0,
    2001: 0,
    2002: 0,
    2003: 0,
    2004: 1,
    # replication
    60: 0,
    61: 0,
    905: 0,
    906: 0,
    907: 0,
    908: 1,
    1007: 1,
    # ours
    950: 0,
    951: 22,
    952: 22,
    953: 1,
    954: 22,
    955: 0,
    956: 0,
    957: 0,
    958: 29,
    959: 1,
    # pops
    200050: 1,
    200051: 1,
    200052: 1,
    200053: 1,
    200054: 1,
    200055: 1,
    200056: 0,
    200151: 208,
}
NOT_SERVED = {
    "asked from clients, never from brokers": {39, 40, 220, 221, 326},
    "name server": {
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327),
        *(901, 904),
    },
    "container": {902, 903},
    "controller": {1001, 1002, 1003, 1004, 1005, 1006, 1009, 1010, 1011, 1012, 1013, 1050, 1051},
    "removed from the reference's brokers": {13, 301},
    "timer engines": {5001},
    "roles given by a controller": {1008},
    "users and permissions, where requests need no signature": {*range(3001, 3011), 960},
}
UNSERVED_CODES = set().union(*NOT_SERVED.values())


def test_the_table_has_every_code_once() -> None:
    assert not SERVED.keys() & UNSERVED_CODES
    assert sum(map(len, NOT_SERVED.values())) == len(UNSERVED_CODES)
    assert {int(code) for code in RequestCode} == SERVED.keys() | UNSERVED_CODES


@pytest.fixture
async def broker(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Broker]:
    options, _ = BrokerOptions.from_properties(
        {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerName": "broker-a",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": str(20 * 1000),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
        },
        machine=Machine("vm", "127.0.0.1", str(tmp_path / "store")),
    )
    made: Broker = await nursery.start(host_broker, real_world(), options)
    yield made
    nursery.cancel_scope.cancel()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with open_client(real_world()) as made:
        yield made


@pytest.mark.covers("IT-22")
async def test_every_code_is_answered(broker: Broker, client: RemotingClient) -> None:
    address = broker.identity.address
    found = {}
    for code in [*SERVED, *UNSERVED_CODES, 0, 9999]:
        answer = await client.invoke(address, request(code), 5_000)
        found[code] = (answer.code, answer.remark if answer.code == 3 else None)
        assert answer.code in (0, 3) or answer.remark, f"code {code} is refused without a reason"
        assert "\n" not in (answer.remark or "")

    expected = {code: (answer_code, None) for code, answer_code in SERVED.items()}
    for code in (*UNSERVED_CODES, 0, 9999):
        expected[code] = (3, f" request type {code} not supported")
    assert found == expected
    assert broker.server.codes == SERVED.keys()


async def test_one_way_requests_are_never_answered(broker: Broker, client: RemotingClient) -> None:
    for code in (*SERVED, *UNSERVED_CODES):
        if code not in (11, 361):
            await client.invoke_oneway(broker.identity.address, request(code, oneway=True), 5_000)

    answer = await client.invoke(broker.identity.address, request(RequestCode.GET_BROKER_CONFIG), 5_000)

    assert answer.code == 0


def form(text: str) -> str:
    """Return the form of a figure: every number and unit as a placeholder."""
    return re.sub(r"[KMGTP]iB|\bB\b", "UNIT", re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "N", text))


async def test_the_roster_of_a_broker_in_a_process_of_its_own_names_no_container(
    broker: Broker, client: RemotingClient
) -> None:
    answer = await client.invoke(broker.identity.address, request(RequestCode.GET_BROKER_ROSTER), 5_000)

    assert ("broker-a", 0, "") == tuple(json.loads(answer.body)[key] for key in ("brokerName", "brokerId", "container"))


async def test_runtime_info_has_every_figure_in_the_captured_form(broker: Broker, client: RemotingClient) -> None:
    captured = json.loads((DATA / "runtime_info.json").read_text())

    answer = await client.invoke(broker.identity.address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 5_000)

    table = json.loads(answer.body)["table"]
    of_one_broker = ("commitLogDiskRatio_", "scheduleMessageOffset_")
    expected = {key: form(text) for key, text in captured.items() if not key.startswith(of_one_broker)}
    found = {key: form(text) for key, text in table.items() if not key.startswith(of_one_broker)}
    rates = {key for key in expected if key.endswith("Tps") and " " in expected[key]}
    assert found.pop("brokerActiveReason") == "master"  # ours
    assert found.keys() == expected.keys()
    assert {key: text for key, text in found.items() if key not in rates} == {
        key: text for key, text in expected.items() if key not in rates
    }
    assert all(re.fullmatch(r"(N)? (N)? (N)?", found[key]) for key in rates)
    assert any(key.startswith("commitLogDiskRatio_") for key in table)
