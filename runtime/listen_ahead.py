"""A port that is listened on before the program that answers on it has been imported.

Whoever waits for the port goes on at once; what it sends waits in the socket until the program is there. Imports next
to nothing, and refuses nothing: an address that cannot be had is left to the program, which says what is wrong.
"""

from __future__ import annotations

import socket

BACKLOG = 1024


class AheadSocket:
    """A listening socket, and for which address it was made.

    The port is taken until :meth:`close`; a second call does nothing, nor one after whoever answers closed it.

    Attributes:
        host, port: as they were asked for.
        socket: who listens.
    """

    def __init__(self, host: str, port: int, listening: socket.socket) -> None:
        self.host = host
        self.port = port
        self.socket = listening

    def close(self) -> None:
        """Give the port back."""
        self.socket.close()


def listen_ahead(host: str, port: str) -> AheadSocket | None:
    """Listen on an address as it stands in a file of settings.

    Returns:
        The socket; ``None`` when the program must try by itself: a host name, a free port, or one that cannot be had.
    """
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65535):
        return None
    flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=flags)[0]
        listening = socket.socket(family, kind)
    except (OSError, UnicodeError):
        return None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        return None
    return AheadSocket(host, int(port), listening)
