"""Which keys say how the ports of a proxy speak TLS: its own, or those of the reference's file of TLS keys; pure.

A proxy's own keys, ``tlsServerMode`` and ``tlsTestModeEnable`` with its two paths, count before that file, each for
what it says: they are for proxies alone, the file is for every program of a host. (In the reference the file secures
the port for remoting clients and the own keys that for gRPC.)
"""

from __future__ import annotations

from understudy.runtime.properties import ConfigError, Properties, printable
from understudy.runtime.tls_server import TlsMode
from understudy.security.tls import KEYS, TlsSettings, idle_keys, read_tls

_OWN_MODE, _OWN_CERTIFICATE, OWN_PATHS = "tlsServerMode", "tlsTestModeEnable", ("tlsCertPath", "tlsKeyPath")
PORT_KEYS = frozenset(key for key in KEYS if key.startswith("tls.server."))
"""Keys of the file of TLS keys that are about ports."""
_MODE, PATHS = "tls.server.mode", ("tls.server.certPath", "tls.server.keyPath")


def tls_of_ports(own: Properties, with_file: Properties, own_mode: str, self_signed: bool) -> TlsSettings:
    """Return how the ports speak TLS; without files of a certificate they make one for themselves.

    Args:
        own: the keys of the proxy's file.
        with_file: the same, and the keys of the file of TLS keys.
        own_mode: what the own keys say, or the default, of which connections the ports take.
        self_signed: whether they, or the defaults, ask for a certificate that the proxy makes itself.

    Raises:
        ConfigError: a value that its key cannot have, or keys that promise what they do not hold.
    """
    key, text = (_MODE, with_file[_MODE]) if _MODE in with_file and _OWN_MODE not in own else (_OWN_MODE, own_mode)
    mode = _mode(text, key, with_file.where(key))
    values = with_file.without([_MODE])  # with a certificate of its own making a proxy may enforce TLS, too
    if _OWN_CERTIFICATE in own:
        values = values.without(PORT_KEYS)
        if not self_signed:
            paths = dict(zip(PATHS, (own[path] for path in OWN_PATHS), strict=True))
            values = values.changed(paths, own.where(_OWN_CERTIFICATE))
    return TlsSettings(mode, read_tls(values).server)


def idle_lines(own: Properties, with_file: Properties, self_signed: bool, mode: TlsMode) -> list[str]:
    """Return a warning for each key of TLS that changes nothing beside the others; see :func:`tls_of_ports`.

    As in the reference, paths of a certificate alone do not say that it is to be used.

    Args:
        own, with_file, self_signed: as of :func:`tls_of_ports`, which has returned.
        mode: which connections the ports take.
    """
    shown = "a certificate that the proxy makes itself, for which nobody vouches"
    if _OWN_CERTIFICATE not in own and with_file.get(PATHS[0], "").strip():
        shown = f"the certificate of {PATHS[0]} ({with_file.where(PATHS[0])})"
    unused = OWN_PATHS if self_signed and mode is not TlsMode.DISABLED else ()
    named = [path for path in unused if own.get(path, "").strip()]
    lines = [
        f"{own.where(path)}: {path} has no effect without {_OWN_CERTIFICATE}=false: clients see {shown}"
        for path in named[:1]
    ]
    return [*lines, *idle_keys(with_file.without([*PORT_KEYS, "tls.test.mode.enable"]))]


def _mode(text: str, key: str, place: str) -> TlsMode:
    try:
        return TlsMode(text.strip().lower())
    except ValueError:
        expected = f"one of {', '.join(mode.value for mode in TlsMode)}"
        raise ConfigError(f"{place}: {key}={printable(text)}: expected {expected}") from None
