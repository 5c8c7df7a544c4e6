"""What brokers, and peers that say to be some, do to a controller: each load ends by itself within some seconds."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable

from bench.load.beside import Exchange
from bench.load.broker_loads import Load, asked
from bench.load.servers import Server
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

GROUPS, REPLICAS = 500, 3
SECONDS = 2.0
LEADS_SECONDS = 10.0
AT_ONCE = 100
MANY = 20_000

_kept: list[Peer] = []


def names(group: int) -> dict[str, str]:
    """Return the fields that say which group a request is about."""
    return {"clusterName": "Large", "brokerName": f"group-{group}"}


def _address(group: int, replica: int) -> str:
    return f"127.0.0.1:{1_000 + group * REPLICAS + replica}"


def _every_replica(groups: int = GROUPS) -> list[tuple[int, int]]:
    return [(group, replica) for replica in range(1, REPLICAS + 1) for group in range(groups)]


def _ask_all(peer: Peer, commands: Iterable[Command]) -> list[Command]:
    waiting, answers = list(commands), list[Command]()
    while waiting:
        now, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        answers += peer.ask_all(*now)
    return answers


def heartbeat(group: int, replica: int, epoch: int = 1) -> Command:
    """Return a sign of life of a replica."""
    fields = {**names(group), "brokerAddr": _address(group, replica), "brokerId": str(replica), "epoch": str(epoch)}
    fields |= {"maxOffset": "1000", "confirmOffset": "1000", "heartbeatTimeoutMills": "60000", "electionPriority": "1"}
    return request(RequestCode.BROKER_HEARTBEAT, fields)


def fill(port: int, groups: int = GROUPS) -> None:
    """Have groups with living replicas, each with a master and all of its replicas in the sync-state set."""
    with Peer(port) as peer:
        until = time.monotonic() + LEADS_SECONDS
        while (peer.ask(RequestCode.CONTROLLER_GET_METADATA_INFO).ext or {}).get("isLeader") != "true":
            if time.monotonic() > until:
                raise RuntimeError(f"the controller does not lead within {LEADS_SECONDS:g} s")
            time.sleep(0.05)
        _ask_all(peer, (apply(group, replica) for group, replica in _every_replica(groups)))
        _ask_all(peer, (registration(group, replica) for group, replica in _every_replica(groups)))
    arrive(port, groups)
    with Peer(port) as peer:
        elections(peer, groups=groups)
        sets_altered(peer, groups)


def apply(group: int, replica: int) -> Command:
    fields = {"appliedBrokerId": str(replica), "registerCheckCode": f"{_address(group, replica)};1"}
    return request(RequestCode.CONTROLLER_APPLY_BROKER_ID, {**names(group), **fields})


def registration(group: int, replica: int) -> Command:
    fields = {"brokerId": str(replica), "brokerAddress": _address(group, replica)}
    return request(RequestCode.CONTROLLER_REGISTER_BROKER, {**names(group), **fields})


def arrive(port: int, groups: int = GROUPS) -> None:
    """Connect every replica and let it say that it lives."""
    for group, replica in _every_replica(groups):
        peer = Peer(port)
        _kept.append(peer)
        command = heartbeat(group, replica)
        peer.send(command)
        peer.wait(command)


def leave() -> None:
    """Close the connections of all replicas."""
    for peer in _kept:
        peer.close()
    _kept.clear()


def elections(peer: Peer, designate: int | None = None, groups: int = GROUPS) -> None:
    """Have each group elect a master."""
    fields = {"brokerId": str(designate or 1), "designateElect": "false" if designate is None else "true"}
    _ask_all(
        peer, (request(RequestCode.CONTROLLER_ELECT_MASTER, {**names(group), **fields}) for group in range(groups))
    )


def _facts(peer: Peer, groups: int) -> dict[str, dict[str, int]]:
    """Return what the controller says of each group."""
    body = json.dumps([names(group)["brokerName"] for group in range(groups)]).encode()
    answer = peer.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
    table: dict[str, dict[str, int]] = json.loads(answer.body)["replicasInfoTable"]
    return table


def sets_altered(peer: Peer, groups: int = GROUPS) -> None:
    """Have the sync-state set of each group be all of it, or its master alone if it is that already."""
    table = _facts(peer, groups)
    commands = []
    for group in range(groups):
        facts = table[names(group)["brokerName"]]
        master, members = facts.get("masterBrokerId", 1), list(range(1, REPLICAS + 1))
        wanted = members if len(facts["inSyncReplicas"]) == 1 else [master]  # type: ignore[arg-type]  # a list of rows
        body = json.dumps({"syncStateSet": wanted, "syncStateSetEpoch": facts["syncStateSetEpoch"]}).encode()
        fields = {"masterBrokerId": str(master), "masterEpoch": str(facts["masterEpoch"])}
        commands.append(request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {**names(group), **fields}, body))
    _ask_all(peer, commands)


def ask_master() -> Exchange[Peer]:
    """Return the exchange of a broker that asks who is master of its group."""
    return Exchange(Peer, lambda peer, number: peer.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, names(7)).code == 0)


def repeated(work: Callable[[Peer], None]) -> Load:
    """Return the load of a peer that does *work* again and again."""

    def load(server: Server) -> None:
        with Peer(server.port) as peer:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                work(peer)

    return load


def heartbeats(peer: Peer) -> None:
    """All replicas say that they live, in one packet."""
    peer.ask_all(*(heartbeat(group, replica) for group, replica in _every_replica()))


def moves(peer: Peer) -> None:
    """An operator moves the role in each group."""
    for designate in (2, 1):
        elections(peer, designate)


def registrations(peer: Peer) -> None:
    _ask_all(peer, (registration(group, replica) for group, replica in _every_replica()))


def all_groups(server: Server) -> None:
    body = json.dumps([names(group)["brokerName"] for group in range(GROUPS)]).encode()
    with Peer(server.port) as peer:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            peer.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)


def strangers(server: Server) -> None:
    """Signs of life of very many brokers that nobody knows; then they are gone."""
    with Peer(server.port) as peer:
        for first in range(0, MANY, 1_000):
            peer.ask_all(*(heartbeat(GROUPS + first + each, 1) for each in range(1_000)))
        time.sleep(SECONDS / 2)
    time.sleep(SECONDS)


def hostile_sets(server: Server) -> None:
    """The largest lists, where a few names or numbers belong."""
    numbers, names = list(range(1_000_000)), [f"group-{number}" for number in range(500_000)]
    fields = {**names(7), "masterBrokerId": "1", "masterEpoch": "1"}
    bodies = (
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {"syncStateSet": numbers, "syncStateSetEpoch": 1}),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, names),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, [numbers]),
    )
    with Peer(server.port) as peer:
        for code, body in bodies:
            peer.ask(code, fields, json.dumps(body).encode())


def every_question(server: Server) -> None:
    """All codes, with fields that fit somewhere and bodies that fit nowhere."""
    fields = {**names(8), "brokerId": "1", "brokerAddr": _address(8, 1), "brokerAddress": _address(8, 1)}
    fields |= {"appliedBrokerId": "1", "registerCheckCode": "x" * 10_000, "masterBrokerId": "1", "masterEpoch": "1"}
    fields |= {"brokerControllerIdsToClean": ";".join(["9"] * 10_000), "designateElect": "true"}
    codes = [code for code in RequestCode if 1_000 <= code < 1_100 or code in _OWN]
    for code in codes:
        for body in (b"", b"[" * 10_000, b'{"a":' * 10_000, b"null", b"\xff" * 100_000, b'"' * 1_000_000):
            with contextlib.suppress(OSError), Peer(server.port) as peer:
                peer.socket.settimeout(2)
                peer.ask(code, fields, body)


_OWN = frozenset(
    {
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CONTROLLER_EXPLAIN_MASTER,
        RequestCode.CONTROLLER_QUORUM_FACTS,
    }
)


def all_close(server: Server) -> None:
    """Every replica of every group is gone at once; then all of them are there again, and each group elects."""
    leave()
    time.sleep(SECONDS)
    arrive(server.port)
    time.sleep(SECONDS)


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("sets of 500 groups (1006)", all_groups, _nothing),
    ("1,500 heartbeats in one packet (904)", repeated(heartbeats), _nothing),
    ("registrations of 1,500 brokers (1003)", repeated(registrations), _nothing),
    ("sets of 500 groups changed (1001)", repeated(sets_altered), _nothing),
    ("masters of 500 groups moved (1002)", repeated(moves), _nothing),
    ("explanations of a master", asked(RequestCode.CONTROLLER_EXPLAIN_MASTER, names(7)), _nothing),
    ("heartbeats of 20,000 strangers (904)", strangers, _nothing),
    ("sets and lists of a million", hostile_sets, _nothing),
    ("every code of a controller", every_question, _nothing),
    ("1,500 brokers close at once", all_close, _nothing),
]
