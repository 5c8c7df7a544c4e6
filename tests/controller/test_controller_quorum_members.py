"""Who is a member of a quorum: lists that change, members that go and come, programs of another version."""

from __future__ import annotations

import pytest
import trio
from controller_quorum import counters, leader_of, quorum_of, running
from trio.testing import MockClock

from understudy.testkit.waiting import until


async def test_a_list_without_members_this_disk_has_met_does_not_start(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        victim = next(host for host in quorum.hosts.values() if host is not leader)
        await running(leader).propose("client", 1, b"x")
        await until(lambda: counters(victim) == counters(leader))
        await victim.kill(power=False)
        # when it comes back with a list in which it would be a majority alone
        quorum.expects_stops = True
        quorum.listed = [victim.name]
        victim.start()
        await until(lambda: victim.member is None)
        others = ", ".join(name for name in quorum.names if name != victim.name)
        assert f"raft.log belongs to a quorum with {others}, which controllerDLegerPeers does not" in victim.stopped
        # and with the right one it is a member as before
        quorum.listed = ()
        victim.start()
        await running(leader).propose("client", 2, b"x")
        await until(lambda: victim.member is not None and counters(victim) == counters(leader))


@pytest.mark.parametrize("size", [3, 4, 5])
async def test_a_member_is_taken_out_and_another_one_put_in(size: int, autojump_clock: MockClock) -> None:
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
        quorum.listed = [host.name for host in stay]
        for host in stay:
            await host.kill(power=False)
            host.start()
            await trio.sleep(1)
        # then they are a quorum with everything that was confirmed
        leader = await leader_of(quorum)
        await running(leader).propose("client", 30, b"x")
        await until(lambda: all(counters(host).get("x") == written + 1 for host in stay))
        # and the one that was taken out is refused should somebody start it with the old list
        quorum.listed = ()
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


async def test_a_member_that_was_not_forgotten_everywhere_is_named_at_the_start(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        gone, other = (host for host in quorum.hosts.values() if host is not leader)
        await running(leader).propose("client", 1, b"x")
        # given a member that runs on when the others forget it: they meet it again
        await running(other).forget(gone.name)
        await until(lambda: not running(other).facts().problem and counters(other) == counters(leader))
        await trio.sleep(5)
        await other.kill(power=False)
        shorter = quorum.listed = [leader.name, other.name]
        other.start()
        await until(lambda: other.member is None)
        # then the message says what to do
        assert f"belongs to a quorum with {gone.name}" in other.stopped
        assert "stop the other one, run 'mqadmin updateControllerConfig -k controllerForgetMember" in other.stopped
        # when that is done, then the two are a quorum
        quorum.listed = ()
        other.start()
        await gone.kill(power=False)
        await until(lambda: other.member is not None and other.member.facts().role != "DOWN")
        for host in (leader, other):
            await running(host).forget(gone.name)
            await host.kill(power=False)
        quorum.listed = shorter
        leader.start()
        other.start()
        await running(await leader_of(quorum)).propose("client", 2, b"x")
        await until(lambda: counters(leader) == counters(other) == {"x": 2})


async def test_a_new_version_is_activated_once_every_member_has_it(autojump_clock: MockClock) -> None:
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
