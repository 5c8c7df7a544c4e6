"""Real Java brokers in controller mode and the real Java mqadmin against our controllers."""

from __future__ import annotations

import pytest

from understudy.controller import drill

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.mark.covers("R151", "R164", "R165", "R169", "R124", "R127", "R135", "R335")
def test_java_brokers_register_elect_and_fail_over(capsys: pytest.CaptureFixture[str]) -> None:
    launcher = drill.find_launcher(None)
    if launcher is None:
        pytest.skip("the Java system is not installed: run bench/java/setup.sh")
    assert drill.main(["--java", str(launcher)]) == 0
    said = capsys.readouterr().out
    assert "two Java brokers" in said
    for step in ("LEADER", "METADATA", "DECIDED", "REJOINED", "REFUSED", "RESTORED"):
        assert step in said
