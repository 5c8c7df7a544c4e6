"""What a replaced real master did is told from what nobody may do."""

from __future__ import annotations

import attrs
import pytest

from understudy.format.record import encode_record
from understudy.testkit.drills.led_judge import Acknowledgement, Judge, Reading, Reign
from understudy.testkit.history import History, Violation

QUEUE = ("orders", "g", 0)
OURS, JAVA = 1, 2
GROUP = "readers"


def record(key: str) -> bytes:
    return encode_record("orders", 0, 0, 0, key.encode(), b"", born_ms=1, born_host=b"\x7f\0\0\1\0\0\0\1")


LOG = record("kept") + record("later")
END = len(record("kept"))


def run(*, stored_by: int = JAVA, at: float = 5.0, kinds: str = "java") -> tuple[Judge, list[Violation]]:
    """A master is replaced at 3 s; *at* this second the one at *stored_by* acknowledged `lost` and showed it."""
    history = History()
    for key in ("kept", "lost", "later"):
        history.sent(key, key, QUEUE, acknowledged=True)
    readings = []
    for key, offset, port, position, moment in [
        ("kept", 0, JAVA, 0, 1.0),
        ("lost", 1, stored_by, END, at),
        ("later", 1, OURS, END, 7.0),
    ]:
        group = "others" if key == "later" else GROUP
        readings.append(Reading(key, group, QUEUE, offset, Acknowledgement(port, position, moment, offset)))
        history.delivered(key, group, QUEUE, offset)
    acknowledged = {
        "kept": Acknowledgement(JAVA, 0, 0.5, 0),
        "lost": Acknowledgement(stored_by, END, at, 1),
        "later": Acknowledgement(OURS, END, 6.0, 1),
    }
    reigns = [Reign(JAVA, 1, 0.0), Reign(OURS, 2, 3.2, 3.0)]
    judge = Judge({OURS: "ours", JAVA: kinds}, reigns, LOG, acknowledged, dict.fromkeys(acknowledged, QUEUE), readings)
    return judge, [each for each in history.check([GROUP, "others"]).violations if "kept" not in each.keys]


def test_what_a_replaced_real_master_acknowledged_and_showed_is_its_doing() -> None:
    judge, violations = run()
    assert [(each.rule, each.keys, each.group) for each in violations] == [
        ("lost", ("later",), GROUP),
        ("lost", ("lost",), "others"),
        ("offset", ("lost", "later"), "others"),
    ]
    why = [judge.explain(each) or "" for each in violations]
    assert why[0].startswith(
        "readers had read up to offset 1 of that queue, by or from the real master at port 2, 2.000 s"
    )
    assert why[1].startswith("acknowledged by or from the real master at port 2, 2.000 s after another one was named")
    assert why[2].startswith("read by or from the real master")


@pytest.mark.parametrize(
    "how",
    [{"stored_by": OURS}, {"at": 2.9}, {"kinds": "ours"}],
    ids=["by the master in office", "before it was replaced", "by one of ours"],
)
def test_what_anybody_else_did_is_not_explained(how: dict[str, object]) -> None:
    judge, violations = run(**how)  # type: ignore[arg-type]
    assert [judge.explain(each) for each in violations] == [None] * 3


def test_what_happened_between_the_last_look_and_the_one_that_saw_another_master_may_be_its_doing() -> None:
    judge, violations = run(at=3.1)
    assert None not in [judge.explain(each) for each in violations]


def test_a_message_that_nobody_read_past_is_lost_for_another_reason() -> None:
    judge, violations = run()
    far = {**judge.acknowledged, "later": attrs.evolve(judge.acknowledged["later"], queue_offset=2)}
    assert attrs.evolve(judge, acknowledged=far).explain(violations[0]) is None
    assert attrs.evolve(judge, acknowledged={}).explain(violations[1]) is None
    assert judge.explain(Violation("order", "lost came before later")) is None
