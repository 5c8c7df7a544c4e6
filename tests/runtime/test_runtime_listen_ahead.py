"""A port that is listened on before the program is there: taken over by whoever asks for it, or left to it."""

from __future__ import annotations

import socket

import pytest
import trio

from understudy.runtime.ahead_network import AheadNetwork
from understudy.runtime.listen_ahead import listen_ahead
from understudy.runtime.network import ListenError
from understudy.testkit.port_blocks import PortBlocks


async def test_who_connects_early_is_answered_by_whoever_asks_for_the_address_later(port_blocks: PortBlocks) -> None:
    # given a port that is listened on, and somebody who has connected and spoken already
    (port,) = port_blocks.middles(1)
    ahead = listen_ahead("127.0.0.1", str(port))
    assert ahead is not None
    with socket.create_connection(("127.0.0.1", port), 5) as early:
        early.sendall(b"hello")
        # when the program asks for the address
        network = AheadNetwork(ahead)
        listener = await network.listen("127.0.0.1", port)
        # then it has the same port, and reads what was said
        assert ("127.0.0.1", port) == listener.address
        with trio.fail_after(30):
            stream = await listener.accept()
            assert b"hello" == await stream.receive_some(100)
        await stream.aclose()
    # when it has stopped, then the port is free, and nobody is handed the old socket again
    await listener.aclose()
    ahead.close()
    again = await network.listen("127.0.0.1", port)
    assert ("127.0.0.1", port) == again.address
    await again.aclose()


async def test_another_address_is_listened_on_as_ever(port_blocks: PortBlocks) -> None:
    # given a socket ahead of its program
    first, second = port_blocks.middles(2)
    ahead = listen_ahead("127.0.0.1", str(first))
    assert ahead is not None
    network = AheadNetwork(ahead)
    # when another port is asked for, then that one is bound, and the first one still waits for whoever wants it
    listener = await network.listen("127.0.0.1", second)
    assert ("127.0.0.1", second) == listener.address
    await listener.aclose()
    listener = await network.listen("127.0.0.1", first)
    assert ("127.0.0.1", first) == listener.address
    await listener.aclose()


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", "0"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "many"),
        ("127.0.0.1", "-1"),
        ("127.0.0.1", "65536"),
        ("127.0.0.1", "9" * 5000),
        ("127.0.0.1", "٣٤٥٦"),
        ("192.0.2.1", "34567"),
        ("localhost", "34567"),
        ("no such host", "34567"),
        ("x" * 300, "34567"),
        ("", "34567"),
    ],
)
def test_what_cannot_be_had_at_once_is_left_to_the_program(host: str, port: str) -> None:
    assert listen_ahead(host, port) is None


async def test_a_port_in_use_is_left_to_the_program_which_says_so(port_blocks: PortBlocks) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert listen_ahead("127.0.0.1", str(port)) is None
        ahead = listen_ahead("127.0.0.1", str(port_blocks.middles(1)[0]))
        assert ahead is not None
        with pytest.raises(ListenError, match="in use"):
            await AheadNetwork(ahead).listen("127.0.0.1", port)
        ahead.close()
