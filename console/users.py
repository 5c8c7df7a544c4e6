"""Users of the cluster who have signed in: each signs what is asked, and sees and changes what brokers let that one.

A password is right when a broker takes a request signed with it and refuses the same one signed with another: a cluster
that checks no signatures lets nobody in by a password.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus

import attrs
import trio

from understudy.console.gatherer import Pace
from understudy.console.sign_ins import SignIns, Tries
from understudy.console.view import Sources, View, open_view
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.session import Session, open_session
from understudy.remoting.codes import ResponseCode
from understudy.runtime.signal import Signal
from understudy.runtime.world import World
from understudy.security.signature import Credentials

MOST_USERS = 8
MOST_AT_ONCE = 4
"""Passwords that are looked at at a time."""
WRONG_SECONDS = 0.5
"""What a wrong one takes at least: so that no more than eight can be tried in a second, whatever names they are for."""
CHECK_SECONDS = 10.0
_MOST_ASKED = 8
_LOOK_AGAIN_SECONDS = 60.0
_LONGEST = 255


class SignInError(Exception):
    """A user is not let in; the message is one sentence for whoever tried.

    Attributes:
        status: what is answered.
        wrong: the password is not the user's, or may be.
    """

    def __init__(self, status: HTTPStatus, text: str, *, wrong: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.wrong = wrong


@attrs.define(eq=False)
class _Open:
    """The view of one user, for all cookies of that user."""

    view: View
    over: trio.Event = attrs.field(factory=trio.Event)


class Users:
    """The users of one console.

    Args:
        world: clock and network.
        sources: where the cluster is; what requests are signed with is that of each user.
        sign_ins: cookies that last.
    """

    def __init__(self, world: World, sources: Sources, sign_ins: SignIns) -> None:
        self._world = world
        self._sources = sources
        self._sign_ins = sign_ins
        self._tries = Tries()
        self._pace = Pace()
        self._limiter = trio.CapacityLimiter(MOST_AT_ONCE)
        self._opening = trio.Lock()
        self._open: dict[Credentials, _Open] = {}
        self._owners: dict[str, Credentials] = {}  # of cookies
        self._changed = Signal()
        self._nursery: trio.Nursery

    def view_of(self, cookie: str) -> View | None:
        """Return what the user of a sign-in that lasts may see."""
        credentials = self._owners.get(cookie)
        return self._open[credentials].view if credentials is not None else None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the views of those who have signed in until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                handled = self._changed.count
                lasting = self._sign_ins.secrets(self._world.clock.monotonic())
                self._owners = {cookie: owner for cookie, owner in self._owners.items() if cookie in lasting}
                for credentials in self._open.keys() - set(self._owners.values()):
                    self._open.pop(credentials).over.set()
                with self._world.clock.move_on_after(_LOOK_AGAIN_SECONDS):
                    await self._changed.wait(handled)

    def left(self) -> None:
        """Close the view of a user whose last sign-in has ended; moves that have begun go on."""
        self._changed.set()

    async def sign_in(self, name: str, password: str) -> str:
        """Let a user in.

        Args:
            name: of the user.
            password: what was given.

        Returns:
            The secret of the sign-in.

        Raises:
            SignInError: not now, or not with that password.
        """
        if not 0 < len(name) <= _LONGEST or not 0 < len(password) <= _LONGEST or not _is_text(name + password):
            raise SignInError(HTTPStatus.FORBIDDEN, "give the name and the password of a user of the cluster")
        credentials, clock = Credentials(name, password), self._world.clock
        async with self._limiter:
            wait = self._tries.wait_seconds(name, clock.monotonic())
            if wait:
                text = f"too many wrong passwords for that user: try again in {wait:.0f} s"
                raise SignInError(HTTPStatus.TOO_MANY_REQUESTS, text)
            try:
                await self._check(credentials)
            except SignInError as error:
                if error.wrong:
                    self._tries.after(name, False, clock.monotonic())
                    await clock.sleep(WRONG_SECONDS)
                raise
        self._tries.after(name, True, clock.monotonic())
        await self._opened(credentials)
        secret = secrets.token_urlsafe(32)
        self._owners[secret] = credentials
        self._sign_ins.begin(secret, clock.monotonic())
        self._changed.set()
        return secret

    async def _opened(self, credentials: Credentials) -> None:
        async with self._opening:
            if credentials in self._open:
                return
            if len(self._open) >= MOST_USERS:
                text = f"{MOST_USERS} users are signed in already, and brokers are asked for each of them"
                raise SignInError(HTTPStatus.SERVICE_UNAVAILABLE, text)
            self._open[credentials] = await self._nursery.start(self._keep, credentials)

    async def _keep(
        self, credentials: Credentials, task_status: trio.TaskStatus[_Open] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with open_view(self._world, self._signed(credentials), self._pace) as view:
            opened = _Open(view)
            task_status.started(opened)
            await opened.over.wait()
            await view.queries.idle()

    def _signed(self, credentials: Credentials) -> Sources:
        return attrs.evolve(self._sources, session=attrs.evolve(self._sources.session, credentials=credentials))

    # --- passwords ---------------------------------------------------------------------------------------------

    async def _check(self, credentials: Credentials) -> None:
        """Ask brokers whether the password is right. Raises :class:`SignInError`."""
        forged = Credentials(credentials.access_key, secrets.token_urlsafe(32))
        servers = self._sources.name_servers
        with self._world.clock.move_on_after(CHECK_SECONDS):
            async with (
                open_session(self._world, servers, self._signed(credentials).session) as session,
                open_session(self._world, servers, self._signed(forged).session) as liar,
            ):
                await _check(session, liar)
            return
        raise SignInError(HTTPStatus.SERVICE_UNAVAILABLE, "the brokers do not answer in time")


async def _check(session: Session, liar: Session) -> None:
    """Return when a broker takes what *session* signs and refuses what *liar* does. Raises :class:`SignInError`."""
    try:
        groups = (await cluster.cluster_info(session)).brokers.values()
    except ClientError as error:
        raise _refusal() if _refuses(error) else SignInError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
    refused, last = False, "no broker is registered"
    open_to_all = False
    for address in [address for group in groups for address in group.addresses.values()][:_MOST_ASKED]:
        try:
            await cluster.runtime_info(session, address)
        except ClientError as error:
            refused, last = refused or _refuses(error), str(error)
            continue
        try:
            await cluster.runtime_info(liar, address)
        except ClientError as error:
            if _refuses(error):
                return
            last = str(error)
            continue
        open_to_all = True
    if refused:
        raise _refusal()
    if open_to_all:
        raise SignInError(HTTPStatus.FORBIDDEN, "the brokers ask nobody for a password: nobody can sign in with one")
    raise SignInError(HTTPStatus.SERVICE_UNAVAILABLE, last)


def _refuses(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION


def _refusal() -> SignInError:
    text = "the brokers refuse that user and password, or the user may not look at the cluster (Cluster:*, Get)"
    return SignInError(HTTPStatus.FORBIDDEN, text, wrong=True)


def _is_text(given: str) -> bool:
    """Return whether it can be sent and signed; line ends and other control characters stand in no name."""
    return given.isprintable()
