"""Lines that peers can cause are told some of each kind in a second, and those left out are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.runtime.damping import MOST, Damping


class Lines:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, **fields: object) -> None:
        self.told.append((event, fields))


def test_some_of_a_kind_are_told_in_a_second_and_the_next_says_how_many_were_left_out() -> None:
    lines, damping = Lines(), Damping()
    for number in range(100):
        damping.tell(lines, "refused", 7.0 + number / 200, peer=number)
    damping.tell(lines, "closed", 7.5)
    damping.tell(lines, "refused", 9.0, peer="next")
    damping.tell(lines, "refused", 11.0, peer="last")
    first = [("refused", {"peer": number}) for number in range(MOST)]
    assert [
        *first,
        ("closed", {}),
        ("refused", {"peer": "next", "left_out": 100 - MOST}),
        ("refused", {"peer": "last"}),
    ] == lines.told


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3)), max_size=60))
def test_every_line_is_told_or_counted(pauses: list[tuple[str, float]]) -> None:
    lines, damping, now = Lines(), Damping(), 0.0
    seconds: dict[tuple[str, int], int] = {}
    for kind, pause in pauses:
        now += pause
        before = len(lines.told)
        damping.tell(lines, kind, now)
        seconds[kind, int(now)] = seconds.get((kind, int(now)), 0) + len(lines.told) - before
    assert all(count <= MOST for count in seconds.values())
    for kind in "ab":
        damping.tell(lines, kind, now + 10)
        told = [fields.get("left_out", 0) for event, fields in lines.told if event == kind]
        asked = sum(each == kind for each, _ in pauses) + 1
        assert asked == len(told) + sum(int(str(count)) for count in told)
