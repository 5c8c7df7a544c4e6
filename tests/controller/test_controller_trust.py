"""Who may greet a member and have others forgotten: who knows the secret, or comes from the same host."""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import trio
from controller_quorum import greet, knowing, leader_of, next_body, quorum_of, running
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.controller.configuration import ControllerConfig, read_peers
from understudy.controller.operators import CHALLENGE_SECONDS, MAX_CHALLENGES, Operators
from understudy.controller.raft.messages import (
    Challenge,
    Hello,
    Proof,
    Refusal,
    Vote,
    Welcome,
    decode_answer,
    encode_body,
    encode_frame,
)
from understudy.controller.raft.secret import Secret, read_secret
from understudy.controller.raft.security import SecurityError
from understudy.controller.raft.trust import Trust
from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import UsageError, parse
from understudy.mqclient.errors import BrokerError
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.fields import CommandError
from understudy.runtime.network import ByteStream, is_own_host
from understudy.runtime.world import World, real_world
from understudy.testkit.quorum.controllers import API_PORT, ControllersResult, SimControllers
from understudy.testkit.quorum.simulation import RAFT_PORT, SECRET, SECRET_FILE, give_secret
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until

OTHER = Secret(b"what members of another quorum know")
KEY = "controllerRaftSecretFile"
HELLO = Hello("sim", "n1", "n0", "disk of n1", 1, 1)


def said(hello: Hello, nonce: bytes) -> Hello:
    fields = {name: getattr(hello, name) for name in hello.__struct_fields__}
    return Hello(**fields | {"nonce": nonce})


def play(dialler: Trust, acceptor: Trust, hosts: tuple[str, str] = ("10.0.0.1", "10.0.0.2")) -> str:
    """Greet without a network; returns what came of it."""
    hello = said(HELLO, dialler.nonce())
    answer = acceptor.judge(hello, encode_body(hello), *hosts)
    try:
        if isinstance(answer, Challenge):
            refusal = acceptor.judge_proof(hello, encode_body(hello), answer, dialler.prove(hello, answer))
        else:
            refusal = answer
            dialler.check_unasked(hello, refusal or Welcome("disk of n0", 1, False))
    except SecurityError as error:
        return f"the dialler: {error}"
    return "" if refusal is None else refusal.reason


def trust(secret: Secret | None, *, certified: bool = False, open_to_all: bool = False) -> Trust:
    return Trust(secret, certified, open_to_all, random.Random(3))


@pytest.mark.parametrize(
    ("dialler", "acceptor", "hosts", "what"),
    [
        (trust(SECRET), trust(SECRET), ("10.0.0.1", "10.0.0.2"), ""),
        (trust(SECRET), trust(OTHER), ("10.0.0.1", "10.0.0.2"), f"member n0 does not know the secret of {KEY} here"),
        (trust(None), trust(SECRET), ("10.0.0.1", "10.0.0.1"), f"n1 proves nothing: it needs {KEY} with our secret"),
        (trust(SECRET), trust(None), ("127.0.0.1", "127.0.0.1"), "member n0 asks for no secret: give it ours by"),
        (trust(None), trust(None), ("10.0.0.1", "10.0.0.2"), "n1 comes from another host and n0 cannot tell whether"),
        (trust(None), trust(None), ("10.0.0.1", "10.0.0.1"), ""),
        (trust(None), trust(None), ("127.0.0.1", "127.0.0.1"), ""),
        (trust(None, certified=True), trust(None, certified=True), ("10.0.0.1", "10.0.0.2"), ""),
        (trust(None, certified=True), trust(SECRET, certified=True), ("10.0.0.1", "10.0.0.2"), "n1 proves nothing"),
        (trust(None), trust(None, open_to_all=True), ("10.0.0.1", "10.0.0.2"), ""),
        # a group that gets its secret, one member after the other
        (trust(None), trust(SECRET, open_to_all=True), ("10.0.0.1", "10.0.0.2"), ""),
        (trust(SECRET, open_to_all=True), trust(None, open_to_all=True), ("10.0.0.1", "10.0.0.2"), ""),
        (trust(OTHER, open_to_all=True), trust(SECRET, open_to_all=True), ("10.0.0.1", "10.0.0.2"), "the dialler"),
    ],
)
def test_a_greeting_is_believed_from_who_knows_the_secret_or_is_on_the_same_host(
    dialler: Trust, acceptor: Trust, hosts: tuple[str, str], what: str
) -> None:
    answer = play(dialler, acceptor, hosts)
    assert answer == "" if what == "" else what in answer


@given(st.binary(max_size=32), st.binary(max_size=32), st.binary(max_size=32))
def test_nothing_but_the_secret_makes_a_proof(proof: bytes, nonce: bytes, own: bytes) -> None:
    acceptor, hello = trust(SECRET), said(HELLO, own or b"1")
    challenge = acceptor.judge(hello, encode_body(hello), "10.0.0.1", "10.0.0.2")
    assert isinstance(challenge, Challenge)
    assert acceptor.judge_proof(hello, encode_body(hello), challenge, Proof(proof)) is not None
    # nor does what the accepting side has said itself
    assert acceptor.judge_proof(hello, encode_body(hello), challenge, Proof(challenge.proof)) is not None
    # and who knows no secret learns nothing that would make the dialler give one away
    with pytest.raises(SecurityError, match="does not know the secret"):
        trust(SECRET).prove(hello, Challenge(nonce, proof))


def test_a_proof_is_good_for_one_greeting_only() -> None:
    dialler, acceptor = trust(SECRET), trust(SECRET)
    hello = said(HELLO, dialler.nonce())
    first = acceptor.judge(hello, encode_body(hello), "10.0.0.1", "10.0.0.2")
    assert isinstance(first, Challenge)
    proof = dialler.prove(hello, first)
    assert acceptor.judge_proof(hello, encode_body(hello), first, proof) is None
    # when somebody who has recorded it says the same again
    second = acceptor.judge(hello, encode_body(hello), "10.0.0.1", "10.0.0.2")
    assert isinstance(second, Challenge)
    assert acceptor.judge_proof(hello, encode_body(hello), second, proof) is not None
    # or says it for another member
    other = said(Hello("sim", "n2", "n0", "disk of n1", 1, 1), hello.nonce)
    assert acceptor.judge_proof(other, encode_body(other), first, proof) is not None


@pytest.mark.parametrize(
    ("local", "peer", "own"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "127.0.0.9", True),
        ("::1", "::1", True),
        ("10.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.1", "localhost", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("0.0.0.0", "10.0.0.2", False),
        ("n0", "n1", False),
    ],
)
def test_the_own_host_is_told_by_the_ends_of_a_connection(local: str, peer: str, own: bool) -> None:
    assert is_own_host(local, peer) is own


async def test_a_recorded_greeting_lets_nobody_in(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        victim = next(host for host in quorum.hosts.values() if host is not leader)
        term = running(leader).term()
        # given what a member said when it dialled the leader
        stranger = quorum.network.host("stranger")
        record = Recording()
        hello = said(running(victim).greeting_for(leader.name, b""), b"")
        first = await stranger.connect(leader.name, RAFT_PORT, 1)
        assert isinstance(await greet(record.of(first), hello, knowing()), Welcome)
        # when a stranger says the same to it
        again = await stranger.connect(leader.name, RAFT_PORT, 1)
        await again.send_all(record.sent[0])
        assert isinstance(decode_answer(await next_body(again)), Challenge)
        await again.send_all(record.sent[1])
        # then it is not believed, and nobody hears what it says afterwards
        answer = decode_answer(await next_body(again))
        assert isinstance(answer, Refusal)
        assert answer.reason == f"{victim.name} does not know the secret of {KEY} here: give it the same"
        await again.send_all(encode_frame(Vote(term + 5)))
        await trio.sleep(1)
        assert running(leader).term() == term


class Recording:
    """Notes what is sent on a stream."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self._stream: ByteStream | None = None

    def of(self, stream: ByteStream) -> ByteStream:
        send = stream.send_all

        async def send_all(data: bytes | bytearray | memoryview) -> None:
            self.sent.append(bytes(data))
            await send(data)

        stream.send_all = send_all  # type: ignore[method-assign]
        return stream


@pytest.mark.parametrize("text", [None, b"what members of another quorum know"])
async def test_a_member_without_the_secret_is_left_out_and_says_why(
    text: bytes | None, autojump_clock: MockClock
) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        victim = next(host for host in quorum.hosts.values() if host is not leader)
        # given a member that is started with another secret, or none
        await victim.kill(power=False)
        settings, usual = quorum.settings, quorum.settings(victim.name)
        if text is None:
            mine = attrs.evolve(usual, secret_file="")
        else:
            mine = attrs.evolve(usual, secret_file="/other")
            victim.disk.open("/other").write_at(0, text)
        quorum.settings = lambda name: mine if name == victim.name else settings(name)  # type: ignore[method-assign]
        victim.start()
        await trio.sleep(5)
        # then it hears from nobody, and its problem names the key
        facts = running(victim).facts()
        assert facts.leader is None
        if text is None:
            assert f"it needs {KEY} with our secret" in facts.problem
        assert running(leader).leads()
        # and is a member again with the right one
        await victim.kill(power=False)
        quorum.settings = settings  # type: ignore[method-assign]
        victim.start()
        await until(lambda: running(victim).facts().leader == leader.name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, f"{KEY}: cannot read .*: No such file or directory"),
        (b"", f"{KEY}: the secret in .* is 0 bytes long, 16 to 4096 are accepted; 'openssl rand -hex 32' makes one"),
        (b"fifteen bytes..\n", f"{KEY}: the secret in .* is 15 bytes long"),
        (b"x" * 5000, f"{KEY}: the secret in .* is 5000 bytes long"),
    ],
)
def test_a_secret_that_cannot_be_used_is_one_clear_line(text: bytes | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(SecurityError, match=why) as refused:
        read_secret(real_world().disk, str(path))
    assert "\n" not in str(refused.value)


def test_members_on_other_hosts_without_a_secret_are_warned_of_at_the_start() -> None:
    peers = "n0-{}:9878;n1-{}:9879;n2-{}:9880"
    config = ControllerConfig(controller_d_leger_peers=peers.format(*["10.0.0.1", "10.0.0.2", "localhost"]))
    config = attrs.evolve(config, controller_d_leger_self_id="n0")
    (warning,) = read_peers(config).warnings
    assert warning.startswith(f"members at 10.0.0.2 and this one refuse each other until {KEY} names a file")
    assert read_peers(attrs.evolve(config, controller_raft_secret_file="/s")).warnings == ()
    same_host = attrs.evolve(config, controller_d_leger_peers=peers.format("10.0.0.1", "10.0.0.1", "127.0.0.1"))
    assert read_peers(same_host).warnings == ()


async def test_an_operator_elsewhere_needs_the_secret_to_have_a_member_forgotten(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        outcome = ControllersResult(0)
        cluster = SimControllers(random.Random(1), nursery, outcome, {})
        cluster.start()
        active = await cluster.wait_active()
        victim = next(host for host in cluster.controllers.values() if host is not active)
        await victim.kill(power=True)
        source = random.Random(2)
        disk = SimDisk(source)
        give_secret(disk)
        disk.open("/other").write_at(0, b"what members of another quorum know")
        operator = World(VirtualClock(), cluster.network.host("operator"), disk, source)

        async def forget(options: str, world: World = operator) -> None:
            command = load_commands()["updateControllerConfig"]
            address = f"{active.name}:{API_PORT}"
            words = f"-a {address} -k controllerForgetMember -v {victim.name} {options}".split()
            values = parse(command.all_options, words)
            await run_command(command, values, [], Output(False, io.StringIO()), world)

        def known() -> bool:
            assert active.controller is not None
            journal = active.controller.member._journal
            return journal is not None and victim.name in journal.peers

        # given an operator on another host: without the secret, with another one, with one that is none
        with pytest.raises(BrokerError, match="from another host needs the secret: mqadmin option --secretFile"):
            await forget("")
        with pytest.raises(BrokerError, match=f"16: controllerForgetMember: that is not the secret which {KEY} names"):
            await forget("--secretFile /other")
        with pytest.raises(UsageError, match=f"{KEY}: cannot read /nowhere: no such file"):
            await forget("--secretFile /nowhere")
        assert known()
        # with the secret the disk is forgotten
        await forget(f"--secretFile {SECRET_FILE}")
        assert not known()
        # and on the controller's own host nobody asks for it
        await forget("", active.world)
        assert outcome.violations == []
        nursery.cancel_scope.cancel()


class ClosedControllers(SimControllers):
    def config(self, name: str) -> ControllerConfig:
        return attrs.evolve(super().config(name), admin_addresses="10.0.0.1")


async def test_the_master_is_moved_by_administrators_only_and_brokers_are_elected_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = ClosedControllers(random.Random(1), nursery, ControllersResult(0), {"a": 2})
        cluster.start()
        # given a group whose brokers had one of them elected
        await cluster.wait_in_sync("a", 2)
        active = await cluster.wait_active()
        assert active.controller is not None
        group = active.controller.metadata.groups["a"]
        before = (group.master_id, group.master_epoch)
        # when somebody on another host wants the other one
        command = load_commands()["electMaster"]
        slave = next(each for each in group.sync_state_set if each != group.master_id)
        values = parse(command.all_options, f"-a {active.name}:{API_PORT} -bn a -c C -b {slave}".split())
        operator = World(VirtualClock(), cluster.network.host("operator"), SimDisk(cluster.source), cluster.source)
        with pytest.raises(BrokerError, match="adminAddresses of this server does not name operator"):
            await run_command(command, values, [], Output(False, io.StringIO()), operator)
        # then nothing happens
        assert before == (group.master_id, group.master_epoch)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("local", "source", "peer", "allowed"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", "10.0.0.2", False),
        ("10.0.0.1", "10.0.0.1", "10.0.0.2", False),  # through a proxy on the controller's host
        ("10.0.0.1", "10.0.0.2", "10.0.0.1", False),  # a proxy elsewhere that names the controller's host
    ],
)
def test_where_controllers_have_no_secret_only_their_own_host_has_a_member_forgotten(
    local: str, source: str, peer: str, allowed: bool
) -> None:
    operators = Operators(Member(None), Clock(), random.Random(1))  # type: ignore[arg-type]
    connection = SimpleNamespace(local=(local, 9878), source=source, peer=(peer, 4711))
    outcomes = []
    for ext in ({}, {"challenge": "00", "proof": "00"}):
        command = request(RequestCode.UPDATE_CONTROLLER_CONFIG, ext)
        try:
            operators.check(connection, command, "n1")  # type: ignore[arg-type]
            outcomes.append("")
        except CommandError as error:
            assert error.code == ResponseCode.NO_PERMISSION
            assert not error.ext
            outcomes.append(error.remark)
    if allowed:
        assert outcomes == ["", ""]
    else:
        assert all("from the controller's own host only" in outcome for outcome in outcomes)


class Member:
    """A controller of the quorum."""

    class settings:
        member = "n0"

    def __init__(self, secret: Secret | None) -> None:
        self.secret = secret


def test_challenges_for_operators_are_bounded_and_end() -> None:
    clock = Clock()
    operators = Operators(Member(SECRET), clock, random.Random(1))  # type: ignore[arg-type]
    given_out = [operators._issue() for _ in range(MAX_CHALLENGES + 10)]
    assert len(operators._challenges) == MAX_CHALLENGES
    assert given_out[-1] in operators._challenges and given_out[0] not in operators._challenges
    clock.now += CHALLENGE_SECONDS + 1
    operators._issue()
    assert len(operators._challenges) == 1


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now
