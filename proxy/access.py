"""The gate of a proxy: each call passes it before it is answered, or is refused.

Users and their rules are those of the brokers, remembered for a while; what a proxy asks brokers is signed with its own
key, so they are asked by somebody who may everything, and what a client may is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import trio
from google.protobuf.message import Message

from understudy.proxy.brokers import Brokers
from understudy.proxy.core.access import check_date, check_signature, check_user, needs_of, read_signed, refused
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.runtime.clock import Clock
from understudy.security.gate import FOR_USER, FROM_ADDRESS, Refusals
from understudy.security.needs import NEEDS
from understudy.security.policies import Need, decide
from understudy.security.settings import SecuritySettings
from understudy.security.signature import ACCESS_KEY
from understudy.security.users import User, UserType

_NEEDS_AT_ONCE = 128
"""What a request needs is as much as its body says: so much is checked in one turn of the event loop."""


class Access:
    """Who may ask a proxy what.

    Args:
        settings: returns what is asked for now; the own key of the proxy is that of the start.
        brokers: who know the users.
        clock: for dates, and for the pace of log lines.
        window_s: how far the date of a call's signature may be from now, in seconds; 0: any date counts.
    """

    def __init__(
        self, settings: Callable[[], SecuritySettings], brokers: Brokers, clock: Clock, window_s: float
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._clock = clock
        self._window_s = window_s
        self._refusals = Refusals(clock.monotonic)
        # Another user that a broker's file names is one of the brokers', who may have changed or deleted it since.
        self._own = None if (own := settings().inner) is None else User(own.access_key, own.secret_key, UserType.SUPER)

    @property
    def asks(self) -> bool:
        """Whether calls must be signed."""
        return self._settings().authenticates

    async def check(self, metadata: Mapping[str, str], source: str, request: Message) -> str | None:
        """Check the signature of a call, and what its user may; return its name as :meth:`authenticate` does.

        Args:
            metadata: header fields of the call by name.
            source: IP address of who calls.
            request: what is asked.

        Raises:
            ProxyError: it is refused (40100), or no broker knows (50400).
        """
        user = await self.authenticate(metadata, source, type(request).__name__)
        await self.authorize(user, source, request)
        return user

    async def authenticate(self, metadata: Mapping[str, str], source: str, call: str) -> str | None:
        """Check the signature of a call; return its user's name, ``None`` where nobody has to sign.

        Args:
            metadata: header fields of the call by name.
            source: IP address of who calls.
            call: name of the request's message.

        Raises:
            ProxyError: see :meth:`check`.
        """
        settings, name = self._settings(), None
        if not settings.authenticates or call in settings.unsigned_calls:
            return None
        try:
            signed = read_signed(metadata.get("authorization", ""), metadata.get("x-mq-date-time", ""))
            name = signed.name
            check_signature(check_user(await self._user(name), name), signed)
            check_date(signed, self._clock.wall_ms() / 1000, self._window_s)
        except ProxyError as error:
            self._tell("not authenticated", name, source, call, error)
            raise
        return name

    async def authorize(self, name: str | None, source: str, request: Message) -> None:
        """Check what a user may.

        Args:
            name: what :meth:`authenticate` returned.
            source: IP address of who calls.
            request: what is asked.

        Raises:
            ProxyError: see :meth:`check`.
        """
        call, settings = type(request).__name__, self._settings()
        if name is None or not settings.authorizes or call in settings.unlimited_calls:
            return
        try:
            await self._authorize(check_user(await self._user(name), name), needs_of(request), source)
        except ProxyError as error:
            self._tell("not authorized", name, source, call, error)
            raise

    def _tell(self, what: str, user: str | None, source: str, request: str | int, error: ProxyError) -> None:
        if error.code == v2.UNAUTHORIZED:
            self._refusals.tell(what, user, source, request, error.message)

    async def check_command(self, command: Command, source: str, cluster: str) -> None:
        """Check a request of the remoting protocol, as brokers do.

        Args:
            command: the request, as it came; says whose it is where brokers must know.
            source: IP address of who sent it.
            cluster: name of the cluster as a resource.

        Raises:
            CommandError: it is refused (16), or no broker knows (1).
        """
        settings, ext = self._settings(), command.ext or {}
        if not settings.authenticates or command.code in settings.unsigned:
            return
        name = ext.get(ACCESS_KEY) or ""
        try:
            if not name:
                raise refused("username cannot be null.")
            user = check_user(await self._user(name), name)
            if not user.secret.has_signed(ext, command.body, command.version):
                raise refused("check signature failed.")
            if settings.authorizes and command.code not in settings.unlimited:
                rule = NEEDS.get(command.code)
                if rule is None and not user.is_super:
                    raise refused(f"User:{name} has no permission for requests of code {command.code}")
                await self._authorize(user, rule(command, cluster) if rule is not None else (), source)
                if command.code == RequestCode.CONSUMER_SEND_MSG_BACK:  # the broker alone knows which message that is
                    command.ext = {**ext, FOR_USER: name, FROM_ADDRESS: source}
        except ProxyError as error:
            if error.code != v2.UNAUTHORIZED:
                raise CommandError(ResponseCode.SYSTEM_ERROR, error.message) from None
            self._tell("request refused", name, source, command.code, error)
            raise CommandError(ResponseCode.NO_PERMISSION, error.message) from None

    async def _user(self, name: str) -> User | None:
        own = self._own
        return own if own is not None and own.name == name else await self._brokers.user(name)

    async def _authorize(self, user: User, needs: Iterable[Need], source: str) -> None:
        if user.is_super:
            return
        rules = await self._brokers.acl(user.name)
        for number, need in enumerate(needs, 1):
            if not number % _NEEDS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            entry = decide(rules, need, source)
            if entry is None or not entry.allow:
                why = "no matched policies" if entry is None else "the decision is deny"
                raise refused(f"User:{user.name} has no permission to access {need} from {source}, {why}.")
