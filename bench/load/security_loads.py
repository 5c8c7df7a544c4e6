"""What users, and those that are none, do to a broker that asks for signatures: each load ends by itself."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from bench.load.beside import Exchange
from bench.load.broker_loads import Load, heartbeat
from bench.load.servers import Server, group_name, topic_name
from bench.load.wire import Peer, send_request
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.security.signature import Credentials, signer

USERS, RULES = 2_000, 10
SUBSCRIBED = 10_000
SECONDS = 2.0
ROOT = Credentials("root", "secret of root")

KEYS: dict[str, object] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret of servers"}',
}

signed_by_root = signer(ROOT)


def user(number: int) -> Credentials:
    """Return a prepared user, who may send to and read every topic, by ten rules."""
    return Credentials(f"user-{number}", f"secret of {number}")


def write_users(folder: Path) -> None:
    """Write the table of users as it is found at a start."""
    config = folder / "store" / "config"
    config.mkdir(parents=True, exist_ok=True)
    entries = [
        {"resource": resource, "actions": ["All"], "decision": "Allow"}
        for resource in ("Topic:*", "Group:*", *(f"Topic:orders-{each}*" for each in range(RULES - 2)))
    ]
    content = {
        "users": [
            {"username": user(number).access_key, "password": user(number).secret_key, "userType": "Normal"}
            for number in range(USERS)
        ],
        "acls": [
            {"subject": f"User:{user(number).access_key}", "policies": [{"policyType": "Custom", "entries": entries}]}
            for number in range(USERS)
        ],
    }
    (config / "users.json").write_text(json.dumps(content))


class SignedPeer(Peer):
    """A connection that signs what it sends."""

    def __init__(self, port: int, by: Credentials) -> None:
        super().__init__(port)
        self._sign = signer(by)

    def send(self, *commands: Command) -> None:
        """Sign requests and send them in one go."""
        for command in commands:
            self._sign(command)
        super().send(*commands)


def send_signed(topic: str) -> Exchange[SignedPeer]:
    """Return the exchange of a small sender that signs."""

    def once(peer: SignedPeer, number: int) -> bool:
        command = send_request(topic, b"%d" % number)
        peer.send(command)
        return peer.wait(command).code == 0

    return Exchange(lambda port: SignedPeer(port, user(7)), once)


def make_topic(port: int, topic: str) -> None:
    """Create a topic as the super user."""
    with SignedPeer(port, ROOT) as peer:
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | {"topicFilterType": "SINGLE_TAG"})
        if answer.code:
            raise RuntimeError(f"topic {topic} could not be created: {answer.remark}")


def all_sign_in(server: Server) -> None:
    """Each user comes with a client of its own, says so, sends, asks, and closes together with all others."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(SignedPeer(server.port, user(number))) for number in range(USERS)]
        for number, peer in enumerate(peers):
            peer.send(
                heartbeat(f"client-{number}", ["senders"], [group_name(number % 100)], topic_name(1)),
                send_request("Beside", b"x"),
                request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group_name(number % 100)}),
            )
        time.sleep(SECONDS)
    time.sleep(SECONDS)


def wrong_signatures(server: Server) -> None:
    """Requests of ten peers that no user has signed, as fast as they come."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(10)]
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            commands = [request(RequestCode.GET_BROKER_RUNTIME_INFO) for _ in range(10)]
            for command in commands:
                signer(Credentials(f"user-{number % USERS}", "a guess"))(command)
                number += 1
            for peer, command in zip(peers, commands, strict=True):
                peer.send(command)
            for peer, command in zip(peers, commands, strict=True):
                peer.wait(command)


def root_asks(code: int, ext: dict[str, str] | None = None) -> Load:
    """Return the load of a super user that asks the same again and again."""

    def work(server: Server) -> None:
        with SignedPeer(server.port, ROOT) as peer:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                peer.ask(code, ext)

    return work


def users_changed(server: Server) -> None:
    """A super user makes users, gives them rules and removes them, each durable before its answer."""
    entry = {"resource": "Topic:made*", "actions": ["Pub"], "decision": "Allow"}
    with SignedPeer(server.port, ROOT) as peer:
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            name, number = f"made-{number}", number + 1
            new = json.dumps({"username": name, "password": "x"}).encode()
            rules = json.dumps({"subject": f"User:{name}", "policies": [{"entries": [entry]}]}).encode()
            peer.ask(RequestCode.AUTH_CREATE_USER, {"username": name}, new)
            peer.ask(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, rules)
            peer.ask(RequestCode.AUTH_DELETE_USER, {"username": name})


def most_rules(server: Server) -> None:
    """One user has as many rules as there may be, and asks about a name that only the last of them fits."""
    entries = [
        {"resource": f"Topic:{number:03}{'x' * 200}*", "actions": ["Pub", "Sub"], "decision": "Allow"}
        for number in range(990)
    ]
    subject = f"User:{user(8).access_key}"
    with SignedPeer(server.port, ROOT) as peer:
        body = json.dumps({"subject": subject, "policies": [{"entries": entries}]}).encode()
        answer = peer.ask(RequestCode.AUTH_UPDATE_ACL, {"subject": subject}, body)
        if answer.code:
            raise RuntimeError(f"rules were not taken: {answer.remark}")
    data = {"clientID": "c", "producerDataSet": []}
    with SignedPeer(server.port, user(8)) as peer:
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            names = [f"asked-{number}-{each}" for each in range(1_000)]
            number += 1
            consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": name} for name in names]}
            body = json.dumps({**data, "consumerDataSet": [consumer]}).encode()
            peer.ask(RequestCode.HEART_BEAT, None, body)


def rules_replaced(server: Server) -> None:
    """A super user gives one user as many rules as there may be, with as many addresses, again and again."""
    subject = f"User:{user(9).access_key}"
    with SignedPeer(server.port, ROOT) as peer:
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            rule = {"actions": ["Pub"], "decision": "Allow", "sourceIps": [f"10.{number % 256}.0.1"]}
            entries = [{"resource": f"Topic:{each}-*", **rule} for each in range(980)]
            number += 1
            body = json.dumps({"subject": subject, "policies": [{"entries": entries}]}).encode()
            answer = peer.ask(RequestCode.AUTH_UPDATE_ACL, {"subject": subject}, body)
            if answer.code:
                raise RuntimeError(f"rules were not taken: {answer.remark}")


def large_heartbeats(server: Server) -> None:
    """A user subscribes to very many topics at once."""
    names = [f"orders-{number}" for number in range(SUBSCRIBED)]
    consumer = {"groupName": "wide", "subscriptionDataSet": [{"topic": name} for name in names]}
    body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    with SignedPeer(server.port, user(10)) as peer:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            peer.ask(RequestCode.HEART_BEAT, None, body)


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("2,000 users sign in and close at once", all_sign_in, _nothing),
    ("wrong signatures of ten peers", wrong_signatures, _nothing),
    ("all users (3005)", root_asks(RequestCode.AUTH_LIST_USER), _nothing),
    ("rules of all users (3010)", root_asks(RequestCode.AUTH_LIST_ACL), _nothing),
    ("the whole table of users", root_asks(RequestCode.GET_ALL_USERS), _nothing),
    ("users made and removed (3001)", users_changed, _nothing),
    ("a user with 1,000 rules", most_rules, _nothing),
    ("rules of a user replaced (3007)", rules_replaced, _nothing),
    ("a user that subscribes to 10,000 topics", large_heartbeats, _nothing),
]
