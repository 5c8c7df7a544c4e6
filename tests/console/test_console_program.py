"""The options of ``mqconsole``: each mistake is one line with the way out."""

from __future__ import annotations

import pytest

from understudy.programs import mqconsole


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", mqconsole.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no name server: add -n host:port or set NAMESRV_ADDR"),
        (["-n", "a:1", "--port", "99999"], "--port 99999: expected a port from 0 to 65535"),
        (
            ["-n", "a:1", "--host", "0.0.0.0"],
            "other hosts would see the cluster and its messages; give --users or --token",
        ),
        (["-n", "a:1", "--name", "c.example"], "--name c.example: other hosts would see the cluster"),
        (
            ["-n", "a:1", "--spark-reports", "no-such"],
            "'no-such' is no folder; name the one that the Spark jobs write to",
        ),
        (["-n", "a:1", "--token", "short"], "the token has 5 characters; take 8 or more, it opens the cluster"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == mqconsole.main(arguments)
    output = capsys.readouterr()
    assert ("", 1) == (output.out, output.err.count("\n"))
    assert output.err.startswith("mqconsole: ")
    assert expected in output.err


def test_the_token_is_better_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "" == mqconsole.given_token(None)
    monkeypatch.setenv(mqconsole.TOKEN_VARIABLE, "from the environment")
    assert "from the environment" == mqconsole.given_token(None)
    assert "from the option" == mqconsole.given_token("from the option")
