"""How long a sign-in lasts, and how soon after wrong passwords the next one is looked at."""

from __future__ import annotations

from understudy.console.sign_ins import (
    IDLE_SECONDS,
    LONGEST_WAIT_SECONDS,
    MOST_NAMES,
    SIGNED_IN_SECONDS,
    SignIns,
    Tries,
)


class TestSignIns:
    def test_one_that_is_used_lasts_for_hours_and_no_longer(self) -> None:
        sign_ins = SignIns()
        sign_ins.begin("secret", 100.0)
        now = 100.0
        while now + IDLE_SECONDS - 1 < 100.0 + SIGNED_IN_SECONDS:
            now += IDLE_SECONDS - 1
            assert sign_ins.holds("secret", now)
        assert not sign_ins.holds("secret", 100.0 + SIGNED_IN_SECONDS)

    def test_one_that_is_not_used_ends_soon_and_does_not_come_back(self) -> None:
        sign_ins = SignIns()
        sign_ins.begin("secret", 0.0)
        assert {"secret"} == sign_ins.secrets(IDLE_SECONDS - 1)
        assert not sign_ins.holds("secret", IDLE_SECONDS)
        assert not sign_ins.holds("secret", IDLE_SECONDS)
        assert frozenset() == sign_ins.secrets(IDLE_SECONDS)

    def test_no_secret_is_printed(self) -> None:
        sign_ins = SignIns()
        sign_ins.begin("secret-of-bob", 0.0)
        assert "secret-of-bob" not in repr(sign_ins)


class TestTries:
    def test_three_wrong_ones_are_free_and_each_further_one_doubles_the_wait(self) -> None:
        tries, waits = Tries(), []
        for _ in range(12):
            tries.after("bob", False, 0.0)
            waits.append(tries.wait_seconds("bob", 0.0))
        assert [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0] == waits[:7]
        assert LONGEST_WAIT_SECONDS == max(waits)
        assert 0.0 == tries.wait_seconds("alice", 0.0)
        assert 0.0 == tries.wait_seconds("bob", LONGEST_WAIT_SECONDS)

    def test_a_right_one_makes_good_for_all_wrong_ones(self) -> None:
        tries = Tries()
        for _ in range(9):
            tries.after("bob", False, 0.0)
        tries.after("bob", True, 60.0)
        tries.after("bob", False, 60.0)
        assert 0.0 == tries.wait_seconds("bob", 60.0)

    def test_names_have_a_number(self) -> None:
        tries = Tries()
        for name in range(MOST_NAMES + 1):
            for _ in range(4):
                tries.after(str(name), False, 0.0)
        assert 0.0 == tries.wait_seconds("0", 0.0)
        assert 0.0 < tries.wait_seconds("1", 0.0)
