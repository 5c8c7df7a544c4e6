"""The keys of authentication and authorization, read beside a server's other keys and never shown or changed by peers.

Source: AuthConfig.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from understudy.format.json_dialect import JsonError, loads
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command
from understudy.runtime.configuration import fields_of, with_values
from understudy.runtime.properties import ConfigError, Properties, printable
from understudy.security.signature import Credentials, signer
from understudy.security.tls import KEYS as TLS_KEYS
from understudy.security.tls import TlsSettings, read_tls

_MESSAGES = "apache.rocketmq.v2."
"""What names of messages of the gRPC protocol begin with."""
_KNOWN = {
    "authenticationProvider": ("DefaultAuthenticationProvider",),
    "authorizationProvider": ("DefaultAuthorizationProvider",),
    "authenticationMetadataProvider": ("LocalAuthenticationMetadataProvider", "ProxyAuthenticationMetadataProvider"),
    "authorizationMetadataProvider": ("LocalAuthorizationMetadataProvider", "ProxyAuthorizationMetadataProvider"),
    "authenticationStrategy": ("StatelessAuthenticationStrategy", "StatefulAuthenticationStrategy"),
    "authorizationStrategy": ("StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy"),
}
ON, OF_ROLES = "authenticationEnabled", "authorizationEnabled"
INIT_USER, INNER = "initAuthenticationUser", "innerClientAuthenticationCredentials"


@attrs.define(kw_only=True)
class _Keys:
    """The keys as they stand in a file.

    Attributes:
        authentication_enabled: every request must be signed by a user.
        authorization_enabled: users may do what rules say, and nothing else; needs ``authenticationEnabled``.
        authentication_provider: accepted, has no effect here: empty or the reference's own class, another stops the
            start.
        authorization_provider: accepted, has no effect here: empty or the reference's own class, another stops the
            start.
        authentication_metadata_provider: accepted, has no effect here: empty or one of the reference's, another stops
            the start.
        authorization_metadata_provider: accepted, has no effect here: empty or one of the reference's, another stops
            the start.
        authentication_strategy: accepted, has no effect here: empty or one of the reference's, another stops the start.
        authorization_strategy: accepted, has no effect here: empty or one of the reference's, another stops the start.
        authentication_whitelist: request codes and names of gRPC messages, divided by commas, that need no signature.
        authorization_whitelist: request codes and names of gRPC messages, divided by commas, that need no rule.
        init_authentication_user: a super user that is there from the first start:
            ``{"username":"...","password":"..."}``.
        inner_client_authentication_credentials: what the process signs its own calls with; a super user, the same in
            the cluster.
        cluster_name: the name of the cluster in rules, for programs that have no key of their own for it.
    """

    authentication_enabled: bool = False
    authorization_enabled: bool = False
    authentication_provider: str = ""
    authorization_provider: str = ""
    authentication_metadata_provider: str = ""
    authorization_metadata_provider: str = ""
    authentication_strategy: str = ""
    authorization_strategy: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    cluster_name: str = ""


@attrs.frozen
class SecuritySettings:
    """What a server was told about who may ask it.

    Attributes:
        authenticates: whether requests must be signed.
        authorizes: whether users need policies.
        unsigned: codes that are answered without a signature.
        unlimited: codes that need no policy.
        unsigned_calls, unlimited_calls: the same for calls of gRPC, by the name of their message.
        init_user: a super user that is there from the start.
        inner: what this process signs its own calls with; a super user of its servers, too.
        cluster: name of the cluster as a resource, where the server has none itself.
        tls: how connections are secured.
    """

    authenticates: bool = False
    authorizes: bool = False
    unsigned: frozenset[int] = frozenset()
    unlimited: frozenset[int] = frozenset()
    unsigned_calls: frozenset[str] = frozenset()
    unlimited_calls: frozenset[str] = frozenset()
    init_user: Credentials | None = None
    inner: Credentials | None = None
    cluster: str = "DefaultCluster"
    tls: TlsSettings = attrs.field(factory=TlsSettings)

    @property
    def super_users(self) -> list[Credentials]:
        """The super users that the file names."""
        return [each for each in (self.init_user, self.inner) if each is not None]


KEYS = frozenset(fields_of(_Keys)) | TLS_KEYS
"""The keys that :func:`read_security` reads."""


def read_security(values: Properties) -> SecuritySettings:
    """Read the keys of *values* that say who may ask.

    Raises:
        ConfigError: a value that its key cannot have, or keys that would leave a server open or closed to everybody.
    """
    keys = with_values(_Keys(), {key: values[key] for key in fields_of(_Keys) if key in values}, values.source)
    for key, words in _KNOWN.items():
        _check_class(values, key, words)
    if keys.authorization_enabled and not keys.authentication_enabled:
        raise ConfigError(
            f"{values.where(OF_ROLES)}: {OF_ROLES}=true needs {ON}=true: without signatures nobody knows who asks"
        )
    settings = SecuritySettings(
        authenticates=keys.authentication_enabled,
        authorizes=keys.authorization_enabled,
        unsigned=_codes(values, "authenticationWhitelist", keys.authentication_whitelist),
        unlimited=_codes(values, "authorizationWhitelist", keys.authorization_whitelist),
        unsigned_calls=_calls(keys.authentication_whitelist),
        unlimited_calls=_calls(keys.authorization_whitelist),
        init_user=_user(values, INIT_USER, "username", "password"),
        inner=_user(values, INNER, "accessKey", "secretKey"),
        cluster=keys.cluster_name or "DefaultCluster",
        tls=read_tls(values),
    )
    check_acl_enable(values, settings)
    return settings


def check_acl_enable(values: Properties, settings: SecuritySettings) -> None:
    """Refuse ``aclEnable=true`` where nothing is closed. Raises ``ConfigError``."""
    if values.get("aclEnable", "").strip().lower() == "true" and not settings.authenticates:
        raise ConfigError(
            f"{values.where('aclEnable')}: aclEnable=true closes nothing by itself: set {ON}=true and {OF_ROLES}=true "
            f"and name users (docs/security.md), or take the key out to answer everybody"
        )


def _check_class(values: Properties, key: str, known: tuple[str, ...]) -> None:
    text = values.get(key, "").strip()
    if text and text.rpartition(".")[2] not in known:
        raise ConfigError(f"{values.where(key)}: {key}={printable(text)} is not here: leave it empty for {known[0]}")


def _codes(values: Properties, key: str, text: str) -> frozenset[int]:
    found = set()
    for word in filter(None, map(str.strip, text.split(","))):
        if word.isdecimal():
            found.add(int(word))
        elif not word.startswith(_MESSAGES):
            raise ConfigError(
                f"{values.where(key)}: {key}={printable(text)}: expected request codes or names like "
                "apache.rocketmq.v2.HeartbeatRequest, divided by commas"
            )
    return frozenset(found)


def _calls(text: str) -> frozenset[str]:
    words = map(str.strip, text.split(","))
    return frozenset(word.removeprefix(_MESSAGES) for word in words if word.startswith(_MESSAGES))


def _user(values: Properties, key: str, name: str, password: str) -> Credentials | None:
    text = values.get(key, "").strip()
    if not text:
        return None
    expected = f'expected {{"{name}":"...","{password}":"..."}}'
    try:
        value: Any = loads(text)
    except JsonError:
        raise ConfigError(f"{values.where(key)}: {key} is no JSON: {expected}") from None
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    found = [fields.get(each) for each in (name, password)]
    if not all(isinstance(each, str) and each.strip() for each in found):
        raise ConfigError(f"{values.where(key)}: {key}: {expected}")
    return Credentials(str(found[0]), str(found[1]))


def signer_of(settings: SecuritySettings) -> Callable[[Command], None] | None:
    """Return what signs a server's own calls, ``None`` when it has nothing to sign with."""
    return None if settings.inner is None else signer(settings.inner)


def secure_calls(client: RemotingClient, settings: SecuritySettings) -> None:
    """Have *client* sign what it sends and secure its connections, as *settings* say.

    Raises:
        ConfigError: files of TLS cannot be used.
    """
    client.sign = signer_of(settings)
    client.tls = settings.tls.for_calls()
