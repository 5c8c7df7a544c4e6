"""Members of a quorum whose disks are lost, shortened, damaged, full or held by another process."""

from __future__ import annotations

import pytest
import trio
from controller_quorum import counters, leader_of, quorum_of, running
from trio.testing import MockClock

from understudy.controller.raft.member import QuorumMember
from understudy.testkit.quorum.simulation import FOLDER, CounterMachine
from understudy.testkit.waiting import until


async def test_a_lost_disk_is_refused_until_the_operator_says_so(autojump_clock: MockClock) -> None:
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


async def test_a_new_disk_has_no_vote_while_no_majority_without_it_follows_a_leader(autojump_clock: MockClock) -> None:
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


async def test_a_shortened_log_is_found_by_the_leader(autojump_clock: MockClock) -> None:
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
    name: str, what: str, autojump_clock: MockClock
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


async def test_a_full_disk_stops_the_member_before_anything_leaves_it(autojump_clock: MockClock) -> None:
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


async def test_two_processes_cannot_share_a_folder(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        host = quorum.hosts["n0"]
        second = QuorumMember(host.world, quorum.settings("n0"), CounterMachine())
        with pytest.raises(Exception, match="held by another process"):
            await second.run()


async def test_a_disk_that_hangs_is_said_and_another_member_leads(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        in_thread, released = leader.disk.in_thread, trio.Event()

        async def hanging(function: object) -> object:
            await released.wait()
            return await in_thread(function)  # type: ignore[arg-type]

        # given a leader whose disk does not answer any more
        leader.disk.in_thread = hanging  # type: ignore[assignment, method-assign]
        with pytest.raises(Exception, match=r".*"), trio.fail_after(5):
            await running(leader).propose("client", 1, b"x")
        # then it says so, and another one leads and takes commands
        assert "the disk has not finished a sync for" in caplog.text
        assert not running(leader).leads()
        await until(lambda: any(host is not leader and running(host).leads() for host in quorum.hosts.values()), 10)
        other = next(host for host in quorum.hosts.values() if host is not leader and running(host).leads())
        await running(other).propose("client", 2, b"y")
        # and when the disk answers again, it follows
        released.set()
        await until(lambda: counters(leader).get("y") == 1, 10)
        assert not running(leader).leads()
