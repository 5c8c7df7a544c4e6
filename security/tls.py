"""The keys of TLS, and what servers and their own calls do with it.

They are those of the reference's ``tls.properties``, and may stand in a server's own file as well. Without a
certificate a port speaks no TLS (differs: the reference makes a certificate of its own then, which nobody can trust).

Source: TlsSystemConfig.java, TlsHelper.java.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TypeVar

import attrs

from understudy.runtime.clock import Clock
from understudy.runtime.os_failure import os_failure
from understudy.runtime.properties import ConfigError, Properties, printable
from understudy.runtime.tls_server import CertificateFiles, ServerTls, TlsMode


@attrs.frozen
class TlsKey:
    """One key of TLS: its text where a file does not have it, and what it does, as the page of settings says."""

    default: str
    effect: str


TABLE = {
    "tls.enable": TlsKey("false", "this process's own calls speak TLS: to name servers, masters, other brokers."),
    "tls.test.mode.enable": TlsKey(
        "", "accepted, has no effect here: of all ports a proxy's alone make a certificate of their own."
    ),
    "tls.server.mode": TlsKey(
        "permissive", "``permissive`` takes TLS and plain connections, ``enforcing`` TLS, ``disabled`` plain ones."
    ),
    "tls.server.certPath": TlsKey("", "file of the ports' certificate, PEM; without it they speak no TLS."),
    "tls.server.keyPath": TlsKey("", "file of the key of the ports' certificate, PEM; both files or none."),
    "tls.server.keyPassword": TlsKey("", "password of the ports' key, if it has one."),
    "tls.server.authClient": TlsKey(
        "false", "certificates that clients show are checked by ``tls.server.trustCertPath``."
    ),
    "tls.server.need.client.auth": TlsKey(
        "none", "``none``, ``optional`` or ``require``: whether clients must show a certificate."
    ),
    "tls.server.trustCertPath": TlsKey("", "file of whom to trust among clients, PEM."),
    "tls.client.certPath": TlsKey("", "file of the certificate that calls show to servers that ask, PEM."),
    "tls.client.keyPath": TlsKey("", "file of the key of the certificate that calls show, PEM."),
    "tls.client.keyPassword": TlsKey("", "password of the key that calls use, if it has one."),
    "tls.client.authServer": TlsKey(
        "false", "certificates of servers are checked by ``tls.client.trustCertPath``; else any is taken."
    ),
    "tls.client.trustCertPath": TlsKey("", "file of whom to trust among servers, PEM."),
    "tls.ciphers": TlsKey("", "ciphers of the ports, by their names in OpenSSL, divided by commas."),
    "tls.protocols": TlsKey("", "accepted, has no effect here: TLS 1.2 and newer are spoken."),
    "tls.config.file": TlsKey("", "a file with these keys, which count before those beside it; read at the start."),
}
KEYS = frozenset(TABLE)
"""The keys that :func:`read_tls` reads."""
T = TypeVar("T")
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@attrs.frozen
class ClientFiles:
    """What this process's own calls are secured with.

    Attributes:
        certificate, key, password: shown to servers that ask; ``""`` for none.
        authority: who signs servers' certificates; ``""``: every certificate is taken.
    """

    certificate: str = ""
    key: str = ""
    password: str = attrs.field(default="", repr=False)
    authority: str = ""

    def context(self) -> ssl.SSLContext:
        """Return what secures calls. Raises ``OSError``."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False  # clusters are addressed by numbers; the reference does not look either
        made.verify_mode = ssl.CERT_REQUIRED if self.authority else ssl.CERT_NONE
        if self.authority:
            made.load_verify_locations(self.authority)
        if self.certificate:
            made.load_cert_chain(self.certificate, self.key, self.password)
        return made


@attrs.frozen
class TlsSettings:
    """What a file says about TLS.

    Attributes:
        mode: which connections the ports take.
        server: certificate and key; ``None``: the ports speak no TLS.
        client: what calls are secured with; ``None``: they are plain.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    server: CertificateFiles | None = None
    client: ClientFiles | None = None

    def for_servers(self, clock: Clock) -> ServerTls | None:
        """Return what the ports of a server do with TLS; ``None`` when they have nothing to do with it.

        Raises:
            ConfigError: the files cannot be used.
        """
        if self.server is None:
            return None
        try:
            return ServerTls(clock, self.server, self.mode)
        except OSError as error:
            files = f"tls.server.certPath={self.server.certificate}, tls.server.keyPath={self.server.key}"
            raise ConfigError(f"{files}: cannot be used: {_reason(error)}", "tls.server.certPath") from None

    def for_calls(self) -> ssl.SSLContext | None:
        """Return what calls are secured with; ``None`` when they are plain.

        Raises:
            ConfigError: the files cannot be used.
        """
        if self.client is None:
            return None
        try:
            return self.client.context()
        except OSError as error:
            raise ConfigError(f"tls.client: files cannot be used: {_reason(error)}", "tls.enable") from None


def _reason(error: OSError) -> str:
    return str(error.reason or error) if isinstance(error, ssl.SSLError) else os_failure(error)


def read_tls(values: Properties) -> TlsSettings:
    """Read the keys of TLS among *values*.

    Raises:
        ConfigError: a value that its key cannot have, or keys that promise what they do not hold.
    """
    texts = {key: values.get(key, row.default).strip() for key, row in TABLE.items()}
    mode = _word(values, texts, "tls.server.mode", {each.value: each for each in TlsMode})
    if bool(texts["tls.server.certPath"]) != bool(texts["tls.server.keyPath"]):
        given = next(key for key in ("tls.server.certPath", "tls.server.keyPath") if texts[key])
        raise ConfigError(f"{values.where(given)}: tls.server.certPath and tls.server.keyPath belong together")
    if mode is TlsMode.ENFORCING and not texts["tls.server.certPath"]:
        raise ConfigError(
            f"{values.where('tls.server.mode')}: tls.server.mode=enforcing needs tls.server.certPath and "
            "tls.server.keyPath, PEM files"
        )
    server = None
    if texts["tls.server.certPath"]:
        server = _server_files(values, texts)
    client = None
    if _word(values, texts, "tls.enable", {"true": True, "false": False}):
        client = ClientFiles(
            texts["tls.client.certPath"],
            texts["tls.client.keyPath"],
            texts["tls.client.keyPassword"],
            _authority(values, texts, "tls.client.authServer", "tls.client.trustCertPath"),
        )
    return TlsSettings(mode, server, client)


def idle_keys(values: Properties) -> list[str]:
    """Return a warning for each key of TLS among *values*, which can be read, that changes nothing beside the others.

    Who writes such a key means to be safer than he is.
    """
    texts = {key: values.get(key, known.default).strip() for key, known in TABLE.items()}
    given = [key for key in values if key in KEYS and texts[key].lower() != TABLE[key].default]
    why = {key: _why_idle(key, texts) for key in given}
    return [f"{values.where(key)}: {key} has no effect here: {why[key]}" for key in given if why[key]]


def _why_idle(key: str, texts: Mapping[str, str]) -> str:
    """Return why a key that is given changes nothing; empty where it does."""
    on = {name for name, text in texts.items() if text.lower() == "true"}
    if key == "tls.test.mode.enable" and key in on:
        return "ports speak TLS with the certificate of tls.server.certPath, and without one not at all"
    if key.startswith("tls.server.") and key != "tls.server.mode" and not texts["tls.server.certPath"]:
        return "without tls.server.certPath and tls.server.keyPath the ports speak no TLS"
    if key.startswith("tls.client.") and "tls.enable" not in on:
        return "without tls.enable=true the calls of this process are plain"
    if key == "tls.server.trustCertPath" and "tls.server.authClient" not in on:
        return "without tls.server.authClient=true nobody asks who signs the certificates of clients"
    if key == "tls.client.trustCertPath" and "tls.client.authServer" not in on:
        return "without tls.client.authServer=true every certificate of a server is taken"
    return ""


def _server_files(values: Properties, texts: Mapping[str, str]) -> CertificateFiles:
    authority = _authority(values, texts, "tls.server.authClient", "tls.server.trustCertPath")
    verify = _word(values, texts, "tls.server.need.client.auth", _VERIFY)
    if verify is not ssl.CERT_NONE and not authority:
        raise ConfigError(
            f"{values.where('tls.server.need.client.auth')}: tls.server.need.client.auth needs "
            "tls.server.authClient=true and tls.server.trustCertPath: otherwise any certificate would do"
        )
    ciphers = texts["tls.ciphers"].replace(",", ":")
    return CertificateFiles(
        texts["tls.server.certPath"],
        texts["tls.server.keyPath"],
        texts["tls.server.keyPassword"] or None,
        authority or None,
        verify,
        ciphers,
    )


def _authority(values: Properties, texts: Mapping[str, str], wanted: str, path: str) -> str:
    if not _word(values, texts, wanted, {"true": True, "false": False}):
        return ""
    if not texts[path]:
        raise ConfigError(f"{values.where(wanted)}: {wanted}=true needs {path}, a PEM file with whom to trust")
    return texts[path]


def _word(values: Properties, texts: Mapping[str, str], key: str, words: Mapping[str, T]) -> T:
    try:
        return words[texts[key].lower()]
    except KeyError:
        expected = f"one of {', '.join(words)}"
        raise ConfigError(f"{values.where(key)}: {key}={printable(texts[key])}: expected {expected}") from None
