"""The machine's TCP/IP: streams, listeners, and who is refused when descriptors are short."""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import threading
from collections.abc import Sequence
from time import perf_counter

import trio

from understudy.runtime import descriptors
from understudy.runtime.comeback import Comeback, IdlePoll
from understudy.runtime.log import get_logger
from understudy.runtime.network import ListenError

log = get_logger("runtime.tcp")

_TOO_MANY = "too many open files and connections; raise the limit (ulimit -n) or have fewer clients"
_ACCEPT_HINTS = {errno.EMFILE: _TOO_MANY, errno.ENFILE: _TOO_MANY}
_TELL_REFUSED_S = 10.0  # between two lines about refused connections
_RECEIVE_BYTES = 256 * 1024  # most that one receive brings, whatever is asked for
_BUFFERS_PER_CALL = 1000  # below IOV_MAX, 1024 on Linux
_UNWAITED_RECEIVES = 3  # in a row, before other tasks get their turn
_PATIENT_RECEIVES = 8  # that wait first, after one that did not was in vain
_SMALL_BYTES = 2048  # more than that in one receive, and the next one may find bytes at once
_LARGE_BYTES = 64 * 1024  # more than that, and others get their turn: to copy it takes as long as to serve some of them


class _Receiving(threading.local):
    """Where the receives of a thread's event loop land before what came is copied out.

    A fresh buffer of the largest size for each receive would cost more than the receive: the system clears its pages
    again and again.
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.looking = False  # whether a stream of this event loop looks for bytes; while one does, none sleeps


_receiving = _Receiving()
_NEVER = IdlePoll()


class TcpStream:
    """A TCP connection with Nagle's delay off.

    Args:
        sock: the connection.
        idle_poll: how long to look for bytes before the event loop sleeps, when the peer was quick before.
    """

    def __init__(self, sock: trio.socket.SocketType, idle_poll: IdlePoll) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = trio.SocketStream(sock)
        self._fd = sock.fileno()
        self._unwaited = 0
        self._patient = 0
        self._busy = idle_poll.busy
        self._comeback = Comeback(idle_poll.window_s)
        self.local: tuple[str, int] = _host_port(sock.getsockname())
        self.peer: tuple[str, int] = _host_port(sock.getpeername())

    async def receive_some(self, max_bytes: int) -> bytes:
        # trio's own stream turns the event loop over after every receive, and wraps it in three context managers: a
        # third of what one small request costs. Bytes that are already there are taken at once here, a few times; a
        # peer that waits for each answer never has some, so for most of its receives that is not tried.
        if self._patient:
            self._patient -= 1
            await self._wait()
        elif self._unwaited >= _UNWAITED_RECEIVES:
            self._unwaited = 0
            await trio.lowlevel.checkpoint()
        else:
            self._unwaited += 1
        while True:
            try:
                buffer = _receiving.buffer
                size = os.readv(self._fd, (buffer[:max_bytes],))
            except BlockingIOError:
                self._patient = _PATIENT_RECEIVES
                await self._wait()
            except OSError as error:
                if self._fd < 0:
                    raise trio.ClosedResourceError("this side closed the connection") from None
                raise trio.BrokenResourceError(f"connection broken: {error.strerror}") from error
            else:
                if size > _SMALL_BYTES:
                    self._patient = 0
                    if size > _LARGE_BYTES:
                        self._unwaited = _UNWAITED_RECEIVES
                return bytes(buffer[:size])

    async def _wait(self) -> None:
        """Wait until there are bytes, or may be some."""
        self._unwaited = 0
        begin = perf_counter()
        looks = self._fd >= 0 and not _receiving.looking and self._comeback.expected() and not self._busy()
        if not looks or not await self._look(begin + self._comeback.window_s):
            if self._fd < 0:
                raise trio.ClosedResourceError("this side closed the connection")
            await trio.lowlevel.wait_readable(self._fd)
        self._comeback.came(perf_counter() - begin, looks)

    async def _look(self, until: float) -> bool:
        """Turn the event loop over, without sleep, while nothing is against it; return whether there are bytes."""
        bytes_there = select.poll()
        bytes_there.register(self._fd, select.POLLIN)
        _receiving.looking = True
        try:
            while perf_counter() < until and not self._busy():
                await trio.lowlevel.checkpoint()
                if self._fd < 0 or bytes_there.poll(0):
                    return self._fd >= 0
        finally:
            _receiving.looking = False
        return False

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        if self._fd < 0:
            return 0
        if len(buffers) <= _BUFFERS_PER_CALL:
            return self._write(buffers)
        sent = 0
        for first in range(0, len(buffers), _BUFFERS_PER_CALL):
            chunk = buffers[first : first + _BUFFERS_PER_CALL]
            taken = self._write(chunk)
            sent += taken
            if taken < sum(map(len, chunk)):
                return sent
        return sent

    def _write(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        try:
            return os.writev(self._fd, buffers)
        except OSError:  # full, or broken: whoever reads or waits to send next learns which
            return 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def aclose(self) -> None:
        self._fd = -1
        await self._stream.aclose()


class TcpListener:
    """A listening TCP socket; *idle_poll* is for the streams it accepts."""

    # Errors of accept() that say something about the machine or the peer, never about this listener.
    _TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED})

    def __init__(self, sock: trio.socket.SocketType, idle_poll: IdlePoll = _NEVER) -> None:
        self._socket = sock
        self._idle_poll = idle_poll
        self.address: tuple[str, int] = _host_port(sock.getsockname())
        self.refused = 0
        self._tell_refused_at = -math.inf

    async def accept(self) -> TcpStream:
        told = False
        while True:
            try:
                sock, _ = await self._socket.accept()
            except OSError as error:
                if error.errno not in self._TRANSIENT:
                    raise
                if not told and error.errno != errno.ECONNABORTED:
                    told = True
                    hint = _ACCEPT_HINTS.get(error.errno or 0, "give this machine more memory or fewer connections")
                    log.warning(
                        "no connection can be accepted at the moment", port=self.address[1], why=error, hint=hint
                    )
                await trio.sleep(0.1)  # out of descriptors or memory: give the process time to free some
                continue
            if sock.fileno() >= descriptors.for_connections():
                sock.close()
                self._refuse()
                continue
            try:
                return TcpStream(sock, self._idle_poll)
            except OSError:  # the peer was gone before we could ask for its name
                sock.close()

    def _refuse(self) -> None:
        """Count a connection that was closed at once, and say so now and then."""
        self.refused += 1
        now = perf_counter()
        if now >= self._tell_refused_at:
            self._tell_refused_at = now + _TELL_REFUSED_S
            log.warning(
                "connections are refused: the other descriptors are kept for files",
                port=self.address[1],
                refused=self.refused,
                most=descriptors.for_connections(),
                hint=_TOO_MANY,
            )

    async def aclose(self) -> None:
        self._socket.close()
        await trio.lowlevel.checkpoint()


class TcpNetwork:
    """The machine's TCP/IP.

    Args:
        backlog: connections that may wait until they are accepted.
        idle_poll: for connections that others opened.
    """

    def __init__(self, backlog: int = 1024, idle_poll: IdlePoll = _NEVER) -> None:
        self._backlog = backlog
        self._idle_poll = idle_poll

    async def listen(self, host: str, port: int) -> TcpListener:
        try:
            family, address = (await _addresses(host, port, socket.AI_PASSIVE))[0]
            sock = trio.socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            reason = f"{error.strerror or error}; name an address of this machine"
            raise ListenError(f"cannot listen on {host}:{port}: {reason}") from error
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await sock.bind(address)
            sock.listen(self._backlog)
        except OSError as error:
            sock.close()
            hint = {
                errno.EADDRINUSE: "the port is in use; stop the process that holds it or choose another port",
                errno.EACCES: "not permitted; choose a port above 1023",
                errno.EADDRNOTAVAIL: "this machine has no such address; choose one of its own, or 0.0.0.0 for all",
            }.get(error.errno or 0, error.strerror or str(error))
            raise ListenError(f"cannot listen on {host}:{port}: {hint}") from error
        return TcpListener(sock, self._idle_poll)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> TcpStream:
        with trio.move_on_after(timeout_seconds):
            failed = 0
            for family, address in await _addresses(host, port):
                try:
                    return await _connected(family, address)
                except OSError as error:
                    failed = failed or error.errno or 0
            raise OSError(failed, os.strerror(failed))  # trio's text repeats the address, which whoever asked adds
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        with trio.move_on_after(timeout_seconds):
            try:
                found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except UnicodeError:
                raise OSError(f"{host!r} is no host name") from None
            return sorted({str(address[0]) for *_, address in found})
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")


_Address = tuple[socket.AddressFamily, tuple[object, ...]]


async def _addresses(host: str, port: int, flags: int = 0) -> list[_Address]:
    """Return every address that *host* stands for, those of IPv4 first as in Java: a name such as localhost often
    stands for ::1 as well, where nobody listens who listens on 0.0.0.0."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return sorted(((family, address) for family, _, _, _, address in found), key=lambda each: each[0] != socket.AF_INET)


async def _connected(family: socket.AddressFamily, address: tuple[object, ...]) -> TcpStream:
    sock = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await sock.connect(address)
        return TcpStream(sock, _NEVER)
    except BaseException:
        sock.close()
        raise


def _host_port(address: tuple[object, ...]) -> tuple[str, int]:
    host, port = address[0], address[1]
    return str(host), int(str(port))
