"""The console shows a cluster of the real servers, as far as these tell, and moves a group there."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
import peer_processes
import pytest
import trio
from peer_processes import JAVA, PeerCluster

from understudy.console.server import Console, ConsoleOptions
from understudy.mqclient.admin import groups, topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.api import ProducerOptions, message, open_producer, real_world
from understudy.mqclient.errors import ClientError
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import open_session
from understudy.remoting.client import open_client
from understudy.runtime.http_server import Answer, Request
from understudy.testkit.drills.controller import GROUP as GROUP_THAT_IS_LED
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_replicas import KINDS, PORTS
from understudy.testkit.drills.ring_processes import ProcessRing
from understudy.testkit.java_tools import LAUNCHER
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

ACL = """
authenticationEnabled=true
authenticationProvider=org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider=org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider
authorizationEnabled=true
authorizationProvider=org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider
authorizationMetadataProvider=org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider
initAuthenticationUser={"username":"rocketmq","password":"12345678"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"innersecret"}
"""
TOPIC, GROUP, TOKEN = "Orders", "billing", "a long token"
JAVA_SECONDS = 120


@pytest.fixture(scope="module")
def java_cluster(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    """A real name server and a real broker."""
    with peer_processes.peer_cluster(JAVA, JAVA, tmp_path_factory.mktemp("java"), port_blocks) as running:
        yield running


@pytest.fixture
def closed_java_cluster(java_home: Path, port_blocks: PortBlocks, tmp_path: Path) -> Iterator[PeerCluster]:
    """A real name server, and a real broker that asks for signatures."""
    port = port_blocks.take()
    namesrv = f"127.0.0.1:{port}"
    text = peer_processes.filled_template("namesrv", PORT=port, DIR=tmp_path / "namesrv")
    servers = [peer_processes.server(JAVA, "namesrv", "namesrv", tmp_path / "namesrv", text)]
    port = port_blocks.take() + 10
    text = peer_processes.filled_template(
        "broker", NAME="broker-a", PORT=port, HA_PORT=port + 2, NAMESRV=namesrv, DIR=tmp_path / "broker-a"
    )
    servers.append(peer_processes.server(JAVA, "broker", "broker-a", tmp_path / "broker-a", text + ACL))
    with peer_processes.running(*servers):
        yield PeerCluster(namesrv, {"broker-a": f"127.0.0.1:{port}"}, {})


@attrs.frozen
class Page:
    """What a page asks, without the socket in between."""

    console: Console
    cookie: str = ""

    async def ask(self, path: str, body: object = None) -> Answer:
        path, _, query = path.partition("?")
        headers = {"host": self.console.address.removeprefix("http://").rstrip("/"), "cookie": self.cookie}
        if not self.cookie:
            headers["authorization"] = f"Bearer {TOKEN}"
        if body is None:
            return await self.console.answer(Request("GET", path, query, headers))
        headers["content-type"] = "application/json"
        return await self.console.answer(Request("POST", path, query, headers, json.dumps(body).encode()))

    async def get(self, name: str, /, **fields: object) -> Any:
        answer = await self.ask(f"/api/{name}?{urlencode(fields)}")
        assert 200 == answer.status, answer.body
        return json.loads(answer.body)

    async def post(self, name: str, body: object) -> Any:
        answer = await self.ask(f"/api/{name}", body)
        assert 200 == answer.status, answer.body
        return json.loads(answer.body)

    async def screens(self) -> AsyncGenerator[dict[str, Any], None]:
        answer = await self.ask("/api/live")
        assert answer.parts is not None
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                if part.startswith(b"data: "):
                    yield json.loads(part[6:])


@asynccontextmanager
async def page_of(name_servers: str, *, users: bool = False) -> AsyncIterator[Page]:
    token = "" if users else TOKEN
    console = Console(real_world(), ConsoleOptions("127.0.0.1", 0, name_servers, token, users=users))
    await console.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        await trio.testing.wait_all_tasks_blocked()
        yield Page(console)
        nursery.cancel_scope.cancel()


async def fill(cluster: PeerCluster) -> list[str]:
    """Send three messages, of which a group has consumed one; return their ids."""
    world, broker = real_world(), cluster.brokers["broker-a"]
    async with open_session(world, cluster.namesrv) as session:
        await topics.save_topic(session, broker, TopicSettings(TOPIC, 1, 1))

        async def routed() -> bool:
            try:
                return bool((await session.fresh_route(TOPIC)).brokers)
            except ClientError:
                return False

        await eventually(routed, 60, 0.2)
        tracing = ProducerOptions(enable_message_trace=True)
        async with open_producer(world, cluster.namesrv, "checkout", tracing) as producer:
            sent = [await producer.send(message(TOPIC, b"order %d" % n, keys=f"order-{n}")) for n in range(3)]
        await groups.save_group(session, broker, {"groupName": GROUP})
        await groups.set_offset(session, broker, GROUP, MessageQueue(TOPIC, "broker-a", 0), 1)
    return [each.message_id for each in sent]


@pytest.mark.slow
async def test_a_cluster_of_the_real_servers_is_shown_and_a_group_moved(java_cluster: PeerCluster) -> None:
    began_ms = int(time.time() * 1000)
    ids = await fill(java_cluster)
    async with page_of(java_cluster.namesrv) as page:
        # the first screen: who leads, who lags, and that the broker cannot say what waits
        with trio.fail_after(60):
            async with aclosing(page.screens()) as screens:
                async for screen in screens:
                    told = all(how != "unknown" for how, _ in hosted(screen))
                    if screen["lag"]["rows"] and screen["waiting"]["cannotSay"] and told:
                        break
        assert "The group has its master." == screen["verdict"]["text"]
        (group,) = screen["groups"]
        assert ("broker-a", "master", 0) == (group["name"], group["state"], group["leaderId"])
        assert [(GROUP, 2)] == [(row["group"], row["behind"]) for row in screen["lag"]["rows"]]
        assert ["broker-a"] == screen["waiting"]["cannotSay"]
        # its settings tell that it is in no container, and led by none
        assert [("own", ["broker-a"])] == hosted(screen)
        assert group["syncSet"] is None
        # topics and groups
        assert ["broker-a"] == {row["name"]: row for row in (await page.get("topics"))["rows"]}[TOPIC]["brokers"]
        topic = await page.get("topic", name=TOPIC)
        assert ([3], []) == ([queue["max"] for queue in topic["queues"]], topic["missing"])
        assert [(1, 3)] == [
            (queue["consumed"], queue["end"]) for queue in (await page.get("group", name=GROUP))["queues"]
        ]

        # messages: by id with who consumed it and its trace, by key, by time
        async def indexed() -> bool:
            await trio.sleep(1.1)  # the same question within a second has the same answer
            rows = (await page.get("messages", topic=TOPIC, id=ids[0]))["rows"]
            return bool(rows and rows[0].get("trace"))

        await eventually(indexed)
        (row,) = (await page.get("messages", topic=TOPIC, id=ids[0]))["rows"]
        assert ("order 0", [GROUP]) == (row["body"], [track["group"] for track in row["tracks"]])
        assert [("Pub", "checkout")] == [(step["kind"], step["group"]) for step in row["trace"]]
        (row,) = (await page.get("messages", topic=TOPIC, key="order-2"))["rows"]
        assert ids[2] == row["id"]
        found = (await page.get("messages", topic=TOPIC, **{"from": began_ms}))["rows"]
        assert ids == [row["id"] for row in found]
        # failovers: it has no reports, and that is no error
        failovers = await page.get("failovers")
        assert ([], []) == (failovers["reports"], failovers["missing"])
        # a move, and back
        plan = await page.get("reset", group=GROUP, topic=TOPIC, to="end")
        moved = await page.post("reset", {"group": GROUP, "topic": TOPIC, "rows": plan["rows"]})
        assert ([(1, 3)], [], []) == (
            [(row["before"], row["after"]) for row in moved["rows"]],
            moved["failed"],
            moved["elsewhere"],
        )
        back = await page.post("undo", {"undo": moved["undo"]})
        assert [(3, 1)] == [(row["before"], row["after"]) for row in back["rows"]]


def hosted(screen: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the groups of the brokers of each place, by the kind of place."""
    return [(row["kind"], [each["group"] for each in row["brokers"]]) for row in screen["containers"]]


@pytest.mark.slow
async def test_brokers_of_a_real_container_are_on_the_map_in_one_that_they_do_not_name(java_home: Path) -> None:
    layout = {"broker-a": [{"brokerName": "broker-a", "brokerId": "0", "brokerRole": "SYNC_MASTER"}]}
    async with open_client(real_world()) as client:
        ring = ProcessRing(client, layout, java=True)
        try:
            await ring.start_all()
            async with page_of(ring.name_server) as page, aclosing(page.screens()) as screens:
                with trio.fail_after(JAVA_SECONDS):
                    async for screen in screens:
                        if hosted(screen) == [("unnamed", ["broker-a"])]:
                            break
        finally:
            ring.close()


@pytest.mark.slow
async def test_the_set_of_a_group_with_a_real_broker_is_on_the_map(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    async with open_client(real_world()) as client:
        drill = LedDrill(tmp_path, port_blocks.middles(PORTS), client, LAUNCHER, real_world(), KINDS["mixed"])
        try:
            await drill.start()
            async with page_of(f"127.0.0.1:{drill.name_server}") as page, aclosing(page.screens()) as screens:

                async def until_in_set(count: int) -> dict[str, Any]:
                    with trio.fail_after(JAVA_SECONDS):
                        async for screen in screens:
                            for group in screen["groups"]:
                                if group["syncSet"] is not None and group["syncSet"]["inSet"] == count:
                                    return screen
                    raise AssertionError("the stream ended")

                # given two brokers of ours and a real one, then all are in it, each in a process of its own
                screen = await until_in_set(3)
                assert [("own", [GROUP_THAT_IS_LED] * 3)] == hosted(screen)
                # when the real one is killed, then it is out, and that says why
                java = drill.kinds.index("java")
                drill.processes.kill(f"broker{java}")
                screen = await until_in_set(2)
                (out,) = [each for each in screen["groups"][0]["syncSet"]["replicas"] if not each["inSet"]]
                assert f"127.0.0.1:{drill.broker_ports[java]}" == out["address"]
                assert "the controllers hear nothing from it" == out["why"]
        finally:
            drill.processes.kill_all()


@pytest.mark.slow
async def test_users_of_the_real_servers_sign_in(closed_java_cluster: PeerCluster) -> None:
    async with page_of(closed_java_cluster.namesrv, users=True) as nobody:

        async def answer(password: str) -> Answer:
            return await nobody.ask("/api/session", {"user": "rocketmq", "password": password})

        async def registered() -> bool:
            return 503 != (await answer("12345678")).status

        await eventually(registered, 60, 0.5)
        # when a wrong password is given, then it is refused, and the right one is taken
        wrong, right = await answer("87654321"), await answer("12345678")
        assert (403, b"the brokers refuse that user and password" in wrong.body) == (wrong.status, True)
        assert 200 == right.status, right.body
        cookie = dict(right.headers)["Set-Cookie"].partition(";")[0]
        page = attrs.evolve(nobody, cookie=cookie)
        assert "rocketmq" == (await page.get("session"))["user"]
        with trio.fail_after(60):
            async with aclosing(page.screens()) as screens:
                async for screen in screens:
                    if screen["verdict"]["state"] == "ok":
                        break
        assert 401 == (await nobody.ask("/api/topics")).status
