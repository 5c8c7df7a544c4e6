"""The quorum as a whole, in virtual time: elections, disks that are lost or lie, hostile peers, upgrades."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.errors import CommandRefusedError, NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.member import QuorumMember, QuorumSettings
from understudy.controller.raft.messages import (
    Append,
    FrameError,
    FrameReader,
    Hello,
    Refusal,
    Vote,
    decode_answer,
    decode_peer_message,
    encode_frame,
)
from understudy.testkit.sim_quorum import (
    FOLDER,
    RAFT_PORT,
    CounterMachine,
    Outcome,
    QuorumHost,
    SimQuorum,
)
from understudy.testkit.sim_quorum_faults import DISK_FAULTS
from understudy.testkit.sim_quorum_history import run_quorum_seed
from understudy.testkit.waiting import until


class Quorum(SimQuorum):
    """A simulated quorum whose settings a test may change."""

    features: dict[str, int]

    def settings(self, name: str) -> QuorumSettings:
        base = super().settings(name)
        return attrs.evolve(base, features=self.features.get(name, 1))


@asynccontextmanager
async def quorum_of(size: int = 3, *, start: bool = True) -> AsyncIterator[Quorum]:
    outcome = Outcome(0)
    async with trio.open_nursery() as nursery:
        quorum = Quorum(random.Random(size), nursery, size, outcome)
        quorum.features = {}
        quorum.expects_stops = True
        if start:
            for host in quorum.hosts.values():
                host.start()
            assert await quorum.wait_leader(10) is not None
        yield quorum
        assert outcome.violations == []
        nursery.cancel_scope.cancel()


async def leader_of(quorum: Quorum) -> QuorumHost:
    leader = await quorum.wait_leader(10)
    assert leader is not None
    return leader


def running(host: QuorumHost) -> QuorumMember:
    assert host.member is not None
    return host.member


def counters(host: QuorumHost) -> dict[str, int]:
    assert isinstance(host.machine, CounterMachine)
    return host.machine.counters


@pytest.mark.covers("R265", "R267", "R268", "R336")
async def test_a_fresh_quorum_gets_one_leader_in_bounded_time(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        roles = sorted(running(host).facts().role for host in quorum.hosts.values())
        assert roles == ["FOLLOWER", "FOLLOWER", "LEADER"]
        leader = await leader_of(quorum)
        await until(lambda: all(running(host).leader() == leader.name for host in quorum.hosts.values()))


@pytest.mark.covers("R335", "R337", "R266", "R303", "R342", "R127")
async def test_each_killed_leader_is_followed_by_one_in_a_later_term(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        terms = []
        for round_number in range(4):
            leader = await leader_of(quorum)
            terms.append(running(leader).term())
            await running(leader).propose("client", round_number + 1, b"x")
            await leader.kill(power=round_number % 2 == 0)
            began = trio.current_time()
            follower = await leader_of(quorum)
            assert trio.current_time() - began < 3
            assert counters(follower)["x"] == round_number + 1
            leader.start()
            await until(lambda leader=leader: running(leader).facts().applied_index > 2)
        assert terms == sorted(set(terms))


@pytest.mark.covers("R267", "R284", "R302")
async def test_a_leader_without_majority_steps_down_and_nobody_follows(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        for host in quorum.hosts.values():
            if host is not leader:
                await host.kill(power=True)
        member = running(leader)
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            await member.propose("client", 1, b"x", 1.0)
        await until(lambda: not member.leads(), 1)
        await trio.sleep(5)
        assert quorum.leading() == []
        assert "x" not in counters(leader)


@pytest.mark.covers("R276", "R278", "R282", "R300")
async def test_an_isolated_member_disturbs_nobody_when_it_returns(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        term = running(leader).term()
        isolated = next(host for host in quorum.hosts.values() if host is not leader)
        others = [name for name in quorum.names if name != isolated.name]
        quorum.network.partition([isolated.name], others)
        await trio.sleep(8)
        assert running(isolated).term() == term
        quorum.network.heal()
        await trio.sleep(3)
        assert running(leader).leads()
        assert running(leader).term() == term


@pytest.mark.covers("R278", "R298")
@pytest.mark.parametrize("sticky", [True, False])
async def test_one_cut_link_costs_the_leader_only_without_stickiness(
    sticky: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        if not sticky:
            monkeypatch.setattr(Consensus, "_hears_leader", lambda self: False)
        follower = next(host for host in quorum.hosts.values() if host is not leader)
        await until(lambda: all(len(running(host).facts().connected) == 2 for host in quorum.hosts.values()))
        term = running(leader).term()
        quorum.network.partition([leader.name], [follower.name])
        await trio.sleep(6)
        assert (running(leader).term() == term) == sticky
        assert running(leader).leads() or not sticky
        if not sticky:
            # the price of the rule's loss: leaders are elected while another one's lease may still be valid
            quorum.outcome.violations.clear()


@pytest.mark.covers("R274", "R275", "R285")
async def test_a_member_with_a_shorter_log_is_refused_with_the_reason(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        stale, fresh = (host for host in quorum.hosts.values() if host is not leader)
        await stale.kill(power=False)
        for number in range(20):
            await running(leader).propose("client", number + 1, b"x")
        await leader.kill(power=False)
        stale.start()
        follower = await leader_of(quorum)
        assert follower is fresh
        assert counters(fresh)["x"] == 20
        reasons = [
            answer
            for election in running(stale).facts().rounds
            for answer in [*election.pre_votes.values(), *election.votes.values()]
        ]
        won = running(fresh).facts().rounds[-1]
        assert won.outcome == "won"
        assert won.votes == {fresh.name: "ACCEPT", stale.name: "ACCEPT"}
        assert all(not answer.startswith("REJECT") or "LEDGER" in answer or "VOTE" in answer for answer in reasons)
        assert "accepted=2/3 outcome=won" in won.describe(quorum.names)


@pytest.mark.covers("R283", "R286", "R296")
async def test_leadership_is_handed_over_on_request(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        target = next(host for host in quorum.hosts.values() if host is not leader)
        await until(lambda: all(len(running(host).facts().connected) == 2 for host in quorum.hosts.values()))
        await running(leader).propose("client", 1, b"x")
        await until(lambda: running(leader).facts().match[target.name] == running(leader).facts().last_index)
        began = trio.current_time()
        assert await running(leader).hand_over(target.name) is None
        await until(lambda: running(target).leads(), 2)
        assert trio.current_time() - began < 0.2
        assert running(target).facts().rounds[-1].forced
        assert await running(leader).hand_over("zz") in ("zz is no member", "this member does not lead")


async def test_a_repeated_command_is_applied_once_even_across_leaders(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        assert await running(leader).propose("client", 1, b"x") == b"1"
        assert await running(leader).propose("client", 1, b"x") == b"1"
        await leader.kill(power=True)
        follower = await leader_of(quorum)
        assert await running(follower).propose("client", 1, b"x") == b"1"
        assert await running(follower).propose("client", 2, b"x") == b"2"
        with pytest.raises(CommandRefusedError, match="newer command"):
            await running(follower).propose("client", 1, b"x")


async def test_a_command_that_fails_is_refused_alike_and_the_next_one_works(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        with pytest.raises(CommandRefusedError, match="UnicodeDecodeError"):
            await running(leader).propose("client", 1, b"\xff\xfe")
        assert await running(leader).propose("client", 2, b"x") == b"1"
        with pytest.raises(ValueError, match="60000 are accepted"):
            await running(leader).propose("client", 3, b"x" * 70_000)
        await until(lambda: all(counters(host).get("x") == 1 for host in quorum.hosts.values()))


@pytest.mark.covers("R132", "R204", "R161")
async def test_everything_is_there_after_the_whole_quorum_lost_power(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        for number in range(300):  # beyond one compaction
            await running(leader).propose(f"client-{number % 3}", number + 1, b"x")
        for host in quorum.hosts.values():
            await host.kill(power=True)
        for host in quorum.hosts.values():
            host.start()
        leader = await leader_of(quorum)
        await running(leader).read_barrier()
        assert counters(leader)["x"] == 300
        assert running(leader).facts().snapshot_index > 0


async def test_a_member_far_behind_gets_a_snapshot(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        behind = next(host for host in quorum.hosts.values() if host is not leader)
        await behind.kill(power=True)
        for number in range(500):
            await running(leader).propose("client", number + 1, bytes([97 + number % 26]) * 400)
        behind.start()
        await until(lambda: counters(behind) == counters(leader))
        assert running(behind).facts().snapshot_index > 0


class TestDisks:
    async def test_a_lost_disk_is_refused_until_the_operator_says_so(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            victim = next(host for host in quorum.hosts.values() if host is not leader)
            for number in range(20):
                await running(leader).propose("client", number + 1, b"x")
            await victim.kill(power=True)
            victim.disk.wipe()
            victim.start()
            await trio.sleep(5)
            facts = running(victim).facts()
            assert (facts.voter, facts.applied_index) == (False, 1)
            assert "comes with another disk" in facts.problem
            assert f"controllerForgetMember -v {victim.name}" in facts.problem

            for host in quorum.hosts.values():
                if host is not victim:
                    assert await running(host).forget(victim.name)
            await until(lambda: running(victim).facts().voter)
            assert counters(victim) == counters(await leader_of(quorum))

    async def test_a_list_without_members_this_disk_has_met_does_not_start(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            victim = next(host for host in quorum.hosts.values() if host is not leader)
            await running(leader).propose("client", 1, b"x")
            await until(lambda: counters(victim) == counters(leader))
            await victim.kill(power=False)
            # when it comes back with a list in which it would be a majority alone
            quorum.expects_stops = True
            whole = quorum.settings
            quorum.settings = lambda name: attrs.evolve(whole(name), addresses={name: whole(name).addresses[name]})  # type: ignore[method-assign]
            victim.start()
            await until(lambda: victim.member is None)
            others = ", ".join(name for name in quorum.names if name != victim.name)
            assert f"raft.log belongs to a quorum with {others}, which controllerDLegerPeers does not" in victim.stopped
            # and with the right one it is a member as before
            quorum.settings = whole  # type: ignore[method-assign]
            victim.start()
            await running(leader).propose("client", 2, b"x")
            await until(lambda: victim.member is not None and counters(victim) == counters(leader))

    @pytest.mark.parametrize("size", [3, 4, 5])
    async def test_a_member_is_taken_out_and_another_one_put_in(self, size: int, autojump_clock: MockClock) -> None:
        async with quorum_of(size) as quorum:
            leader = await leader_of(quorum)
            for number in range(20):
                await running(leader).propose("client", number + 1, b"x")
            # given a member that is stopped, and another one that is behind, so that both had a part in the majority
            await until(lambda: all(counters(host) == counters(leader) for host in quorum.hosts.values()))
            gone, behind, *_ = (host for host in quorum.hosts.values() if host is not leader)
            if size > 3:
                await behind.kill(power=False)
                await running(leader).propose("client", 21, b"x")
            written = counters(leader)["x"]
            await gone.kill(power=False)
            # when the others forget it, and are restarted with the list without it, one after the other
            stay = [host for host in quorum.hosts.values() if host is not gone]
            if size > 3:
                behind.start()
                await until(lambda: behind.member is not None and counters(behind).get("x") == written)
            for host in stay:
                await running(host).forget(gone.name)
            whole, names = quorum.settings, {host.name for host in stay}

            def without(name: str) -> QuorumSettings:
                base = whole(name)
                return attrs.evolve(base, addresses={each: base.addresses[each] for each in names})

            quorum.settings = without  # type: ignore[method-assign]
            for host in stay:
                await host.kill(power=False)
                host.start()
                await trio.sleep(1)
            # then they are a quorum with everything that was confirmed
            leader = await leader_of(quorum)
            await running(leader).propose("client", 30, b"x")
            await until(lambda: all(counters(host).get("x") == written + 1 for host in stay))
            # and the one that was taken out is refused should somebody start it with the old list
            quorum.settings = whole  # type: ignore[method-assign]
            gone.start()
            await trio.sleep(5)
            assert f"{gone.name} is no other member here" in running(gone).facts().problem
            assert running(leader).leads() and not running(gone).leads()
            await gone.kill(power=False)
            # when an empty disk takes its place in the list again, and all others are restarted with the longer list
            gone.disk.wipe()
            for host in (*stay, gone):
                if host is not gone:
                    await host.kill(power=False)
                host.start()
                await trio.sleep(1)
            # then it gets everything and a vote
            leader = await leader_of(quorum)
            await running(leader).propose("client", 31, b"x")
            await until(lambda: running(gone).facts().voter and counters(gone).get("x") == written + 2)

    async def test_a_member_that_was_not_forgotten_everywhere_is_named_at_the_start(
        self, autojump_clock: MockClock
    ) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            gone, other = (host for host in quorum.hosts.values() if host is not leader)
            await running(leader).propose("client", 1, b"x")
            # given a member that runs on when the others forget it: they meet it again
            await running(other).forget(gone.name)
            await until(lambda: not running(other).facts().problem and counters(other) == counters(leader))
            await trio.sleep(5)
            await other.kill(power=False)
            former, names = quorum.settings, (leader.name, other.name)

            def shorter(name: str) -> QuorumSettings:
                base = former(name)
                return attrs.evolve(base, addresses={each: base.addresses[each] for each in names})

            quorum.settings = shorter  # type: ignore[method-assign]
            other.start()
            await until(lambda: other.member is None)
            # then the message says what to do
            assert f"belongs to a quorum with {gone.name}" in other.stopped
            assert "stop the other one, run 'mqadmin updateControllerConfig -k controllerForgetMember" in other.stopped
            # when that is done, then the two are a quorum
            quorum.settings = former  # type: ignore[method-assign]
            other.start()
            await gone.kill(power=False)
            await until(lambda: other.member is not None and other.member.facts().role != "DOWN")
            for host in (leader, other):
                await running(host).forget(gone.name)
                await host.kill(power=False)
            quorum.settings = shorter  # type: ignore[method-assign]
            leader.start()
            other.start()
            await running(await leader_of(quorum)).propose("client", 2, b"x")
            await until(lambda: counters(leader) == counters(other) == {"x": 2})

    async def test_a_new_disk_has_no_vote_while_no_majority_without_it_follows_a_leader(
        self, autojump_clock: MockClock
    ) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            victim, other = (host for host in quorum.hosts.values() if host is not leader)
            await running(leader).propose("client", 1, b"x")
            await other.kill(power=True)
            await victim.kill(power=True)
            victim.disk.wipe()
            await until(lambda: not running(leader).leads())
            await running(leader).forget(victim.name)
            victim.start()
            await trio.sleep(10)
            assert quorum.leading() == []  # the old leader alone must not be joined by an empty disk
            assert not running(victim).facts().voter
            other.start()
            await until(quorum.leading)
            await running(other).forget(victim.name)
            await until(lambda: running(victim).facts().voter)

    async def test_a_shortened_log_is_found_by_the_leader(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            victim = next(host for host in quorum.hosts.values() if host is not leader)
            for number in range(50):
                await running(leader).propose("client", number + 1, b"x")
            await until(lambda: counters(victim).get("x") == 50)
            await victim.kill(power=False)
            victim.disk.damage(f"{FOLDER}/raft.log", lambda data: data[: len(data.rstrip(b"\0")) * 2 // 3])
            victim.start()
            await until(lambda: victim.member is None)
            assert "lost synced data" in victim.stopped
            assert f"{FOLDER}/raft.log" in victim.stopped
            assert running(leader).leads()

    @pytest.mark.parametrize(
        ("name", "what"), [("raft.log", "raft.log"), ("raft.snapshot", "the snapshot fails its checksum")]
    )
    async def test_a_damaged_file_stops_the_member_with_the_way_back(
        self, name: str, what: str, autojump_clock: MockClock
    ) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            for number in range(300):
                await running(leader).propose("client", number + 1, b"x")
            victim = next(host for host in quorum.hosts.values() if host is not leader)
            await until(lambda: running(victim).facts().snapshot_index > 0)
            await victim.kill(power=False)
            victim.disk.damage(f"{FOLDER}/{name}", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:])
            victim.start()
            await until(lambda: victim.member is None)
            assert what in victim.stopped
            assert "to rejoin" in victim.stopped

    async def test_a_full_disk_stops_the_member_before_anything_leaves_it(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            victim = next(host for host in quorum.hosts.values() if host is not leader)

            def refuse(function: object) -> None:
                raise OSError(28, "No space left on device")

            async def in_thread(function: object) -> None:
                await trio.lowlevel.checkpoint()
                refuse(function)

            victim.disk.in_thread = in_thread  # type: ignore[assignment, method-assign]
            await running(leader).propose("client", 1, b"x")
            await until(lambda: victim.member is None)
            assert victim.stopped.startswith(f"cannot write to {FOLDER}: No space left on device")
            assert counters(leader)["x"] == 1

    async def test_two_processes_cannot_share_a_folder(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            host = quorum.hosts["n0"]
            second = QuorumMember(host.world, quorum.settings("n0"), CounterMachine())
            with pytest.raises(Exception, match="held by another process"):
                await second.run()


class TestPeers:
    async def greet(self, quorum: Quorum, hello: Hello) -> tuple[object, trio.abc.Stream]:
        stranger = quorum.network.host("stranger")
        stream = await stranger.connect(hello.target, RAFT_PORT, 1)
        await stream.send_all(encode_frame(hello))
        reader = FrameReader(1 << 20)
        while (body := reader.next_body()) is None:
            reader.feed(await stream.receive_some(4096))
        return decode_answer(body), stream  # type: ignore[return-value]

    @pytest.mark.covers("R273", "R291")
    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"cluster": "other"}, "this is group sim, not other"),
            ({"source": "n9"}, "n9 is no other member here; members are n0, n1, n2"),
            ({"source": "n0"}, "n0 is no other member here"),
            ({"target": "n2"}, "this is member n0, not n2"),
            ({"protocol": 9}, "protocol 9 is not spoken here"),
            ({"incarnation": "forged"}, "comes with another disk"),
            ({"members": "n0,n1,n2,n3,n4"}, "n1 is configured with the members n0,n1,n2,n3,n4, n0 with n0,n1,n2"),
        ],
    )
    async def test_strangers_are_refused_and_told_why(
        self, change: dict[str, object], why: str, autojump_clock: MockClock
    ) -> None:
        async with quorum_of() as quorum:
            term = running(quorum.hosts["n0"]).term()
            hello = Hello("sim", "n1", "n0", "whatever", 1, 1)
            fields = {name: getattr(hello, name) for name in hello.__struct_fields__} | change
            stream = await quorum.network.host("stranger").connect("n0", RAFT_PORT, 1)
            await stream.send_all(encode_frame(Hello(**fields)))
            reader = FrameReader(1 << 20)
            while (body := reader.next_body()) is None:
                data = await stream.receive_some(4096)
                assert data
                reader.feed(data)
            answer = decode_answer(body)
            assert isinstance(answer, Refusal)
            assert why in answer.reason
            await stream.send_all(encode_frame(Append(10**6, 10**6, 1, 0, [], 1, 1, True)))
            await trio.sleep(2)
            assert running(quorum.hosts["n0"]).term() == term

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x04\x95 pickle",
            b"\xff" * 64,
            (1 << 30).to_bytes(4, "big"),
            b"\0\0\0\0",
            b"\0\0\0\x05junk!",
            encode_frame(Vote(5)),
            encode_frame(Hello("sim", "n1", "n0", "x" * 200, 1, 1))[:20],
            b"",
        ],
    )
    async def test_junk_ends_its_connection_and_nothing_else(self, data: bytes, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            stream = await quorum.network.host("stranger").connect(leader.name, RAFT_PORT, 1)
            await stream.send_all(data)
            with trio.fail_after(5):
                assert await stream.receive_some(100) == b""
            assert running(leader).leads()
            assert await running(leader).propose("client", 1, b"x") == b"1"

    async def test_replayed_messages_of_an_old_connection_change_nothing(self, autojump_clock: MockClock) -> None:
        async with quorum_of() as quorum:
            leader = await leader_of(quorum)
            follower = next(host for host in quorum.hosts.values() if host is not leader)
            for number in range(30):
                await running(leader).propose("client", number + 1, b"x")
            await until(lambda: counters(follower).get("x") == 30)
            before = running(follower).facts()
            term = before.term
            for message in (
                Append(term, 2, 1, 0, [(b"\x01", 2, term)], 1, 2, False),
                Append(term - 1, 99, 1, 0, [], 1, 2, True),
                Vote(term),
            ):
                running(follower).deliver(leader.name, message)
            await trio.sleep(1)
            after = running(follower).facts()
            assert (after.last_index, after.term, after.commit_index) == (
                before.last_index,
                term,
                before.commit_index,
            )


class TestFeatures:
    async def test_a_new_version_is_activated_once_every_member_has_it(self, autojump_clock: MockClock) -> None:
        async with quorum_of(start=False) as quorum:
            quorum.features = {"n0": 2, "n1": 2, "n2": 1}
            for host in quorum.hosts.values():
                host.start()
            await leader_of(quorum)
            await trio.sleep(2)
            assert {running(host).facts().features for host in quorum.hosts.values()} == {1}

            quorum.features["n2"] = 2
            await quorum.hosts["n2"].kill(power=False)
            quorum.hosts["n2"].start()
            await until(lambda: all(running(host).facts().features == 2 for host in quorum.hosts.values()))

            await quorum.hosts["n1"].kill(power=False)
            quorum.features["n1"] = 1  # an old program returns
            quorum.hosts["n1"].start()
            await until(lambda: quorum.hosts["n1"].member is None)
            assert "needs feature version 2" in quorum.hosts["n1"].stopped
            assert "upgrade it" in quorum.hosts["n1"].stopped


@pytest.mark.parametrize("data", [b"", b"\x93", b"\x91\xa6append", b"\x92\xa4vote\xc3", b"\xc1", b"\x92\xa4vote\xff"])
def test_undecodable_messages_are_frame_errors(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_peer_message(data)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "size"), [(1, 3), (27, 3), (78, 3), (4, 5)])
def test_random_histories_keep_every_promise(seed: int, size: int) -> None:
    assert run_quorum_seed(seed, size, 6.0).violations == []


@pytest.mark.slow
def test_a_new_disk_elects_nobody_who_lacks_what_was_acknowledged() -> None:
    outcome = run_quorum_seed(0, 3, 6.0, DISK_FAULTS)
    assert outcome.violations == []
    assert outcome.counts["leaders lost with a disk"] > 0


@pytest.mark.covers("R289")
def test_a_seed_is_one_history() -> None:
    assert run_quorum_seed(11, 3, 2.0).digest == run_quorum_seed(11, 3, 2.0).digest
