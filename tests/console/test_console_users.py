"""Signing in as a user of a cluster that asks for passwords: who sees and moves what, and what a wrong one costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from console_rig import Browser, Reply, count_requests
from test_console_cluster import pair
from trio.testing import MockClock

from understudy.console import users
from understudy.console.gatherer import Pace
from understudy.console.server import Console, ConsoleOptions
from understudy.console.view import Sources, open_view
from understudy.format.json_dialect import dumps
from understudy.mqclient.admin import groups
from understudy.mqclient.api import ProducerOptions, message, open_producer, real_world
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, SessionOptions, open_session
from understudy.remoting.codes import RequestCode
from understudy.security.signature import Credentials
from understudy.testkit.local_cluster import LocalCluster

ROOT = Credentials("root", "the root's secret")
VIEWER = Credentials("viewer", "the viewer's secret")
CLIENT = Credentials("client", "the client's secret")
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"the root\'s secret"}',
}
RIGHTS = {
    VIEWER: (("Cluster:*", "Get"), ("Topic:*", "Get"), ("Group:*", "Get")),
    CLIENT: (("Topic:*", "Pub"), ("Topic:*", "Sub"), ("Group:*", "Sub")),
}
TOPIC, GROUP = "Orders", "billing"


@attrs.frozen
class Page:
    """A console for users before a cluster that asks for passwords, and how somebody asks it."""

    browser: Browser
    broker: str
    cookie: str = ""

    async def ask(self, path: str, *, method: str = "GET", body: object = None) -> Reply:
        return await self.browser.ask(
            f"/api/{path}", {"Authorization": "", "Cookie": self.cookie}, method=method, body=body
        )

    async def sign_in(self, name: str, password: str) -> Reply:
        return await self.ask("session", method="POST", body={"user": name, "password": password})

    async def by(self, who: Credentials) -> Page:
        reply = await self.sign_in(who.access_key, who.secret_key)
        assert 200 == reply.status, reply.json
        return attrs.evolve(self, cookie=reply.headers["set-cookie"].partition(";")[0])


async def make_users(session: Session, address: str) -> None:
    for who, rights in RIGHTS.items():
        body = {"username": who.access_key, "password": who.secret_key}
        await session.call(address, RequestCode.AUTH_CREATE_USER, {"username": who.access_key}, dumps(body))
        subject = f"User:{who.access_key}"
        for resource, action in rights:
            entry = {"resource": resource, "actions": [action], "decision": "Allow"}
            policies = {"subject": subject, "policies": [{"entries": [entry]}]}
            await session.call(address, RequestCode.AUTH_CREATE_ACL, {"subject": subject}, dumps(policies))


@asynccontextmanager
async def page(keys: Mapping[str, str]) -> AsyncIterator[Page]:
    """Two messages, of which a group has consumed none."""
    world, signed = real_world(), SessionOptions(credentials=ROOT)
    async with LocalCluster(broker_config=keys) as local:
        ((name, broker),) = local.brokers.items()
        address = broker.identity.address
        options = ProducerOptions(session=signed)
        async with open_producer(world, local.namesrv_address, "checkout", options) as producer:
            queue = (await producer.send(message(TOPIC, b"one"))).queue
        async with open_session(world, local.namesrv_address, signed) as session:
            if keys:
                await make_users(session, address)
            await groups.save_group(session, address, {"groupName": GROUP})
            await groups.set_offset(session, address, GROUP, MessageQueue(TOPIC, name, queue.queue_id), 0)
        console = Console(world, ConsoleOptions("127.0.0.1", 0, local.namesrv_address, users=True))
        await console.bind()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(console.run)
            port = int(console.address.rstrip("/").rpartition(":")[2])
            yield Page(Browser(world.network, "127.0.0.1", port), name)
            nursery.cancel_scope.cancel()


async def test_each_sees_and_moves_what_brokers_let_that_user(caplog: pytest.LogCaptureFixture) -> None:
    async with page(KEYS) as nobody:
        # given a page that shows nothing without sign-in
        for path in ("groups", "live", "reports"):
            assert (401, "sign in as a user of the cluster") == (
                (reply := await nobody.ask(path)).status,
                reply.json["error"],
            )
        session = (await nobody.ask("session")).json
        assert (True, True, False, "", "") == tuple(
            session[name] for name in ("users", "closed", "signedIn", "user", "nameServers")
        )
        # when users sign in, then each sees
        viewer, root = await nobody.by(VIEWER), await nobody.by(ROOT)
        assert ["viewer", "root"] == [(await each.ask("session")).json["user"] for each in (viewer, root)]
        plan = (await viewer.ask(f"reset?group={GROUP}&topic={TOPIC}&to=end")).json
        move = {"group": GROUP, "topic": TOPIC, "rows": plan["rows"]}
        # and moves only what that user may
        refused = await viewer.ask("reset", method="POST", body=move)
        assert 422 == refused.status
        assert "nothing was moved" in refused.json["error"]
        assert "answered 16: User:viewer has no permission" in refused.json["error"]
        moved = await root.ask("reset", method="POST", body=move)
        assert (200, []) == (moved.status, moved.json["failed"])
        # when one signs out, then the other one stays
        assert 200 == (await viewer.ask("session", method="DELETE")).status
        assert 401 == (await viewer.ask("groups")).status
        assert 200 == (await root.ask("groups")).status
        # and what is no user of that page is none: the token's ways lead nowhere
        bearer = await nobody.browser.ask("/api/groups", {"Authorization": "Bearer "})
        assert 401 == bearer.status
    assert "by=root" in caplog.text
    for who in (ROOT, VIEWER):
        assert who.secret_key not in caplog.text


async def test_a_wrong_password_is_one_line_and_many_have_to_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(users, "WRONG_SECONDS", 0.01)
    async with page(KEYS) as nobody:
        told = "the brokers refuse that user and password, or the user may not look at the cluster (Cluster:*, Get)"
        for name, password in (("root", "a guess"), ("mallory", "a guess"), (CLIENT.access_key, CLIENT.secret_key)):
            reply = await nobody.sign_in(name, password)
            assert (403, {"error": told}) == (reply.status, reply.json)
            assert "set-cookie" not in reply.headers
        for name, password in (("", ""), ("root", ""), ("root\n", "x"), ("x" * 300, "x"), ("\ud800", "x")):
            reply = await nobody.sign_in(name, password)
            assert (403, "give the name and the password" in reply.json["error"]) == (reply.status, True)
        for _ in range(2):
            assert 403 == (await nobody.sign_in("root", "a guess")).status
        # when the third was wrong, then even the right one waits, and other users do not
        reply = await nobody.sign_in("root", ROOT.secret_key)
        assert (429, True) == (reply.status, "try again in 1 s" in reply.json["error"])
        await nobody.by(VIEWER)
        await trio.sleep(1.1)
        await nobody.by(ROOT)
    assert "a guess" not in caplog.text


async def test_where_brokers_check_no_signatures_nobody_signs_in_with_a_password() -> None:
    async with page({}) as nobody:
        reply = await nobody.sign_in("root", "anything")
        assert (403, True) == (reply.status, "the brokers ask nobody for a password" in reply.json["error"])
        assert 401 == (await nobody.ask("groups")).status


async def test_users_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MOST_USERS", 1)
    async with page(KEYS) as nobody:
        root = await nobody.by(ROOT)
        other = await nobody.by(ROOT)  # again, from another browser
        reply = await nobody.sign_in(VIEWER.access_key, VIEWER.secret_key)
        assert (503, True) == (reply.status, "1 users are signed in already" in reply.json["error"])
        # when one of the two leaves, then there is no room yet, and when the other one leaves as well, there is
        await root.ask("session", method="DELETE")
        assert 503 == (await nobody.sign_in(VIEWER.access_key, VIEWER.secret_key)).status
        await other.ask("session", method="DELETE")
        viewer = await nobody.by(VIEWER)
        # and who signs in once more in the same browser leaves nobody behind
        again = await viewer.by(VIEWER)
        assert 401 == (await viewer.ask("groups")).status
        await again.ask("session", method="DELETE")
        await nobody.by(ROOT)


async def test_brokers_are_asked_once_a_second_at_most_by_all_users_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, pace = 4, Pace()
    async with pair() as (cluster, _), AsyncExitStack() as stack:
        sources = Sources(cluster.name_servers, SessionOptions())
        world = cluster.client_world("users")
        for _ in range(3):
            view = await stack.enter_async_context(open_view(world, sources, pace))
            stack.enter_context(view.gatherer.watching())
        await trio.sleep(10)
        asked = count_requests(monkeypatch)
        await trio.sleep(30)
        assert 21 * brokers <= asked[RequestCode.GET_BROKER_RUNTIME_INFO] <= 31 * brokers
        assert asked[RequestCode.GET_BROKER_CONSUME_STATS] <= 7 * 2
