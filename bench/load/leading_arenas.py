"""What attacks on name servers and controllers are made on, and what only those are attacked with."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from bench.load import controller_loads, name_server_loads
from bench.load.arenas import Arena, Setting
from bench.load.attacks import Attack, Strength, half_frames, hostile_bodies, hostile_frames, was_noticed
from bench.load.beside import Exchange
from bench.load.broker_loads import flooded
from bench.load.effects import Effect
from bench.load.port_attacks import TLS_HELLO, all_of, crowd, drip, noise, played, quick
from bench.load.servers import Server, controller, name_server
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.frame import encode

BROKERS, TOPICS_EACH = 5, 2_000
GROUPS = 100
REPLICAS = list(range(1, controller_loads.REPLICAS + 1))
FLOOD_REQUESTS = 500
INFLATED_BYTES = 64 << 20


def routed(number: int) -> str:
    """Return the name of a topic that has a route: a long one, so that lists of them are large."""
    return f"routed-{number}-{'x' * 100}"


@contextlib.contextmanager
def names_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack a name server that a client asks for a route."""
    server_keys = {"keys": setting.keys, "descriptors": setting.descriptors, "without": setting.without}
    with name_server(folder, **server_keys) as server, contextlib.ExitStack() as stack:  # type: ignore[arg-type]
        for number in range(BROKERS):
            peer = stack.enter_context(Peer(server.port))
            topics = range(number * TOPICS_EACH, (number + 1) * TOPICS_EACH)
            command = name_server_loads.registration(f"routed-{number}", topics, 1_000 + number, routed)
            peer.send(command)
            answer = peer.wait(command)
            if answer.code:
                raise RuntimeError(f"a broker is refused: {answer.code} {answer.remark}")
        with Peer(server.port) as peer:
            right = peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": routed(7)}).body

        def once(peer: Peer, number: int) -> bool:
            return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": routed(7)}).body == right

        if b'"routed-0"' not in right:
            raise RuntimeError(f"no route: {right!r}")
        yield Arena(server, server.port, Exchange(Peer, once))


@contextlib.contextmanager
def controller_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack a controller that moves the role in a group again and again, as an operator asks it to."""
    server_keys = {"keys": setting.keys, "descriptors": setting.descriptors, "without": setting.without}
    with controller(folder, **server_keys) as server:  # type: ignore[arg-type]
        try:
            controller_loads.fill(server.port, GROUPS)
            before = _master_epoch(server.port)

            def lost(acknowledged: list[int]) -> int:
                return max(len(acknowledged) - (_master_epoch(server.port) - before), 0)

            yield Arena(server, server.port, Exchange(Peer, moved), lost=lost)
        finally:
            controller_loads.leave()


@contextlib.contextmanager
def quorum_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the port at which a controller's members talk."""
    with controller_arena(folder, setting) as arena:
        yield attrs.evolve(arena, server=attrs.evolve(arena.server, port=arena.server.port + 1))


def _master_epoch(port: int) -> int:
    with Peer(port) as peer:
        answer = peer.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, controller_loads.names(0))
    return int((answer.ext or {})["masterEpoch"])


def moved(peer: Peer, number: int) -> bool:
    """Have the sync-state set of a group be whole, and then its role move. Raises ``RuntimeError``: it is refused."""
    names = controller_loads.names(0)
    answer = _accepted(peer.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, names))
    ext, body = answer.ext or {}, json.loads(answer.body)
    if sorted(body["syncStateSet"]) != REPLICAS:
        fields = {**names, "masterBrokerId": ext["masterBrokerId"], "masterEpoch": ext["masterEpoch"]}
        whole = json.dumps({"syncStateSet": REPLICAS, "syncStateSetEpoch": body["syncStateSetEpoch"]}).encode()
        _accepted(peer.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, whole))
    designate = "2" if ext["masterBrokerId"] == "1" else "1"
    fields = {**names, "brokerId": designate, "designateElect": "true"}
    answer = _accepted(peer.ask(RequestCode.CONTROLLER_ELECT_MASTER, fields))
    return (answer.ext or {}).get("masterBrokerId") == designate


def _accepted(answer: Command) -> Command:
    if answer.code:
        raise RuntimeError(f"refused with {answer.code} {answer.remark}")
    return answer


def one_way(name: str, *commands: Command) -> Attack:
    """Return the attack of peers that send *commands*, to be answered never, as fast as they can."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        for command in commands:
            command.flag |= 2
        data = b"".join(map(encode, commands)) * (FLOOD_REQUESTS // len(commands))
        read = flooded(server, data, strength.seconds) * FLOOD_REQUESTS // len(data)
        return [Effect(f"one-way {name} were read", read, int(500 * strength.seconds))]

    return work


def hostile_registrations(server: Server, strength: Strength) -> list[Effect]:
    """Registrations of brokers that are none: bodies that inflate, false checksums, impossible ids and names."""
    bomb, noticed = zlib.compress(bytes(INFLATED_BYTES), 9), 0
    good = {"brokerName": "hostile", "brokerAddr": "127.0.0.1:1", "clusterName": "Large", "haServerAddr": "127.0.0.1:1"}
    good |= {"brokerId": "0", "compressed": "false", "bodyCrc32": "0"}
    bad: list[tuple[dict[str, str], bytes]] = [
        ({"compressed": "true"}, bomb),
        ({"compressed": "true"}, struct.pack(">i", INFLATED_BYTES) + bomb),
        ({"compressed": "true"}, bomb[: len(bomb) // 2]),
        ({"bodyCrc32": "1"}, b"{}"),
        ({"brokerId": "-9223372036854775808"}, b"{}"),
        ({"brokerId": str(2**63 - 1)}, b"{}"),
        ({"brokerName": "n" * 100_000}, b"{}"),
        ({"brokerAddr": "a" * 100_000}, b"{}"),
        ({"brokerAddr": ""}, b"{}"),
        ({"clusterName": ""}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"":null,"a":1}}}'),
    ]
    for _ in range(strength.rounds):
        for fields, body in bad:
            data = encode(request(RequestCode.REGISTER_BROKER, {**good, **fields}, body))
            with contextlib.suppress(OSError), Peer(server.port) as peer:
                noticed += was_noticed(peer.socket, data, 2.0)
    return [Effect("hostile registrations were answered", noticed, len(bad) * strength.rounds * 3 // 4)]


def all_topics(server: Server) -> Command:
    """Return the request for the longest list that a name server has."""
    return request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def all_sets(server: Server) -> Command:
    """Return the request for the sync-state sets of all groups."""
    body = json.dumps([controller_loads.names(group)["brokerName"] for group in range(GROUPS)]).encode()
    return request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)


def _route() -> Command:
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": routed(8)})


def _registration() -> Command:
    return name_server_loads.registration("flooding", range(3), 999, routed)


names = all_of(
    hostile_frames,
    hostile_bodies,
    hostile_registrations,
    half_frames,
    one_way("questions for routes", _route()),
    one_way("registrations", _registration()),
    crowd(lambda number: b""),
)
"""Everything that a peer can do to a name server, but to read nothing and to take its descriptors."""

decisions = all_of(
    hostile_frames,
    hostile_bodies,
    half_frames,
    one_way("heartbeats", *(controller_loads.heartbeat(GROUPS + each, 1) for each in range(100))),
    crowd(lambda number: b""),
)
"""The same at a controller."""

quorum = all_of(
    played([b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", TLS_HELLO, struct.pack(">I", 2**31), b"\xff" * 10_000]),
    noise,
    crowd(lambda number: b"" if number % 2 else struct.pack(">I", 1 << 24)),
    drip(b"\x00\x00\x10\x00"),
    quick(struct.pack(">I", 100) + bytes(100)),
)
"""Everything that a stranger can do to the port of a controller's members."""
