"""Which slaves copy from a master that comes back, as far as their connections tell."""

from __future__ import annotations

import pytest

from understudy.container.preonline import handshake
from understudy.container.preonline.copying import not_copying
from understudy.container.preonline.handshake import Done, Failed, Member, Members, Phase, State

ONE, TWO, THREE = Member(1, "10.0.0.1:10911"), Member(2, "10.0.0.2:10911"), Member(3, "10.0.0.1:10921")


@pytest.mark.parametrize(
    ("wanted", "connected", "known", "missing"),
    [
        # by its host, whoever else copies
        ((ONE,), ["10.0.0.2:40000"], (TWO,), (ONE,)),
        ((ONE,), ["10.0.0.2:40000", "10.0.0.1:40001"], (TWO,), ()),
        ((ONE, TWO), ["10.0.0.2:40000"], (), (ONE,)),
        # two slaves of one host by their number
        ((ONE, THREE), ["10.0.0.1:40000"], (), (THREE,)),
        ((ONE, THREE), ["10.0.0.1:40000", "10.0.0.1:40001"], (), ()),
        # from an address that is nobody's
        ((ONE,), ["10.9.9.9:40000"], (TWO,), ()),
        ((ONE, TWO), ["10.9.9.9:40000"], (), (TWO,)),
        ((ONE, TWO), ["10.9.9.9:40000", "10.9.9.9:40001"], (), ()),
        ((ONE, TWO), ["10.9.9.9:40000", "10.0.0.1:40000"], (), ()),
        ((), [], (ONE,), ()),
    ],
)
def test_a_connection_is_that_of_the_slave_of_its_host(
    wanted: tuple[Member, ...], connected: list[str], known: tuple[Member, ...], missing: tuple[Member, ...]
) -> None:
    assert not_copying(wanted, connected, known) == missing


def returned(copied: handshake.Event) -> State:
    """Return where a master stands that is done with slave 1, of which *copied* came, and waits for slave 2."""
    master = Member(0, "10.0.0.9:10911")
    state = handshake.begin(master, (), lone=False, now=0.0, patience_seconds=60, timeout_seconds=10)
    for event in (Members((ONE, TWO)), Done(), Done(), copied, Done(), Done(), Done()):
        state = handshake.step(state, event, 1.0)
    assert (state.phase, state.target) == (Phase.AWAIT_COPY, TWO)
    return state


def test_a_slave_that_cannot_copy_is_not_counted_for_the_next_one() -> None:
    assert returned(Done()).copying == (ONE,)
    assert returned(Failed("it has other messages")).copying == ()
