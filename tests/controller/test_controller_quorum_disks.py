"""Members of a quorum whose disks are lost, shortened, damaged, full or held by another process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from controller_quorum import counters, leader_of, quorum_of, running
from trio.testing import MockClock

from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.member import QuorumMember
from understudy.testkit.quorum.simulation import FOLDER, CounterMachine
from understudy.testkit.sim.disk import SimDisk
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


class HangingDisk:
    """Takes a disk's thread away and gives it back."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk, self._in_thread = disk, disk.in_thread
        self._answers = trio.Event()
        disk.in_thread = self._wait  # type: ignore[assignment, method-assign]

    async def _wait(self, function: Callable[[], object]) -> object:
        await self._answers.wait()
        return await self._in_thread(function)

    def answer(self) -> None:
        self._disk.in_thread = self._in_thread  # type: ignore[method-assign]
        self._answers.set()


async def test_a_leader_whose_disk_hangs_steps_down_within_the_election_time_and_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        member, timing = running(leader), quorum.timing
        # given a leader whose disk does not answer any more
        disk, began = HangingDisk(leader.disk), trio.current_time()
        # when a command needs it, and a second one comes after it
        refused: list[type[Exception]] = []

        async def ask(sequence: int) -> None:
            try:
                await member.propose(f"client {sequence}", 1, b"x")
            except (NotLeaderError, OutcomeUnknownError) as error:
                refused.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            await trio.sleep(0.01)
            nursery.start_soon(ask, 2)
        # then it leads no longer after the shortest election time, and whoever waits is told at once
        assert trio.current_time() - began == pytest.approx(timing.election_min_seconds, abs=0.1)
        assert set(refused) == {OutcomeUnknownError, NotLeaderError}
        facts = member.facts()
        assert (facts.role, facts.leader, facts.ready, facts.lease) == ("FOLLOWER", None, False, False)
        assert "the disk of this member does not answer" in facts.problem
        assert "the disk has not finished a sync for 0.4 s" in caplog.text
        with pytest.raises(NotLeaderError):
            await member.propose("client 3", 1, b"x")
        # and another one leads before the longest election time, twice for a split vote, has passed
        others = [host for host in quorum.hosts.values() if host is not leader]
        await until(lambda: any(running(host).leads() for host in others))
        assert trio.current_time() - began < 2 * timing.election_max_seconds
        await running(next(host for host in others if running(host).leads())).propose("client 4", 1, b"y")
        # and when the disk answers again, it follows
        disk.answer()
        await until(lambda: counters(leader).get("y") == 1)
        assert not member.leads()
        assert member.facts().problem == ""


async def test_a_leader_whose_disk_hung_must_be_elected_again(autojump_clock: MockClock) -> None:
    async with quorum_of(1) as quorum:
        # given the only member of a quorum, which nobody can replace meanwhile
        leader = await leader_of(quorum)
        member, term, disk = running(leader), running(leader).term(), HangingDisk(leader.disk)
        with pytest.raises(OutcomeUnknownError):
            await member.propose("client", 1, b"x")
        # when its disk answers again
        disk.answer()
        await until(member.leads)
        # then it leads in another term
        assert member.term() == term + 1


async def test_whoever_dials_a_member_whose_disk_hangs_is_told_so(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        disk = HangingDisk(leader.disk)
        with pytest.raises(OutcomeUnknownError):
            await running(leader).propose("client", 1, b"x")
        other = next(host for host in quorum.hosts.values() if host is not leader)
        await other.kill(power=False)
        other.start()
        await until(lambda: "does not answer" in running(other).facts().problem)
        disk.answer()
        await until(lambda: running(other).facts().problem == "")


@pytest.mark.parametrize("size", [1, 3])
async def test_no_sync_of_a_member_runs_on_the_loop(size: int, autojump_clock: MockClock) -> None:
    # given members that note where each sync is done, those of snapshots that they write and get included
    async with quorum_of(size) as quorum:
        threads, on_loop = [0], []
        for host in quorum.hosts.values():
            in_thread, check_sync = host.disk.in_thread, host.disk.check_sync

            async def counted(
                function: Callable[[], object], in_thread: Callable[..., Awaitable[object]] = in_thread
            ) -> object:
                def run() -> object:
                    threads[0] += 1
                    try:
                        return function()
                    finally:
                        threads[0] -= 1

                return await in_thread(run)

            def checked(check_sync: Callable[[], None] = check_sync) -> None:
                if not threads[0]:
                    on_loop.append("sync")
                check_sync()

            host.disk.in_thread = counted  # type: ignore[assignment, method-assign]
            host.disk.check_sync = checked  # type: ignore[method-assign]
        # when commands come, the log is cut, and a member that was away gets a snapshot
        leader = await leader_of(quorum)
        behind = next((host for host in quorum.hosts.values() if host is not leader), None)
        if behind is not None:
            await behind.kill(power=False)
        for number in range(250):
            await running(leader).propose("client", number + 1, b"x")
        await running(leader).compact()
        await until(lambda: running(leader).facts().snapshot_index > 200)
        if behind is not None:
            behind.start()
            await until(lambda: counters(behind).get("x") == 250)
            assert running(behind).facts().snapshot_index > 200
        # then none of them was done on the loop
        assert on_loop == []
