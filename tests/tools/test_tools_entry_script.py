"""The entry script: what it answers without an environment, and how it makes and repairs one."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "understudy"


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"]} | environment
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60, env=env, cwd="/"
    )


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that believes it stands in an empty checkout, with installation steps recorded."""
    loader = importlib.machinery.SourceFileLoader("understudy_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("understudy_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.9.9"\n')
    (tmp_path / "understudy").write_text("")
    venv = tmp_path / ".venv"
    for name, value in {
        "ROOT": tmp_path,
        "VENV": venv,
        "VENV_PYTHON": venv / "bin" / "python",
        "STATE": venv / ".understudy",
        "UNFINISHED": venv / ".understudy" / "unfinished",
        "LOCK": tmp_path / "understudy",
    }.items():
        monkeypatch.setattr(module, name, str(value))
    monkeypatch.setattr(module, "interpreter_candidates", lambda: [sys.executable])
    steps: list[str] = []
    monkeypatch.setattr(module, "steps", steps, raising=False)

    def record(command: list[str], what: str) -> None:
        steps.append(what)
        if "venv" in command:
            (venv / "bin").mkdir(parents=True, exist_ok=True)
            (venv / "pyvenv.cfg").write_text("version = 3.11\n")
            (venv / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(module, "run_step", record)
    return module


MADE, INSTALLED = "making .venv", "installing with pip"


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "/nonexistent"}])
def test_the_version_needs_no_home(environment: dict[str, str]) -> None:
    # given an environment with no usable home; when asked for the version
    done = call("--version", **environment)
    # then it answers
    assert (0, "understudy ") == (done.returncode, done.stdout[:11])


@pytest.mark.parametrize("subcommand", ["up", "test", "bench", "drill", "spark", "matrix"])
def test_every_subcommand_tells_the_version(subcommand: str) -> None:
    assert call("--version").stdout == call(subcommand, "--version").stdout


def test_a_checkout_that_cannot_be_written_is_one_line_with_the_way_out(script: ModuleType) -> None:
    refused = OSError(errno.EROFS, "Read-only file system", f"{script.VENV}/.understudy/unfinished")
    line = script.os_line(refused)
    assert f"cannot write {script.VENV}/.understudy/unfinished: Read-only file system" in line
    assert "copy the checkout to a folder of yours" in line
    assert "[Errno 2]" in script.os_line(OSError(errno.ENOENT, "No such file", "/elsewhere"))


def test_an_unknown_subcommand_is_one_line_with_the_nearest_name() -> None:
    done = call("tset")
    assert (2, "", "understudy: unknown subcommand 'tset'; did you mean 'test'?\n") == (
        done.returncode,
        done.stdout,
        done.stderr,
    )


def test_help_names_every_subcommand() -> None:
    done = call("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("up", "test", "bench", "drill", "spark", "matrix"))


def test_the_first_use_installs_and_the_second_does_not(script: ModuleType) -> None:
    # given an empty checkout; when the same extras are asked for twice
    script.install("compress")
    script.install("compress")
    # then everything was done once
    assert [MADE, INSTALLED] == script.steps
    assert script.is_installed("compress")


def test_the_rooms_are_compiled_by_the_installation(script: ModuleType, tmp_path: Path) -> None:
    # given a checkout with a room behind its link, where Python writes no caches of its own
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text("answer = 42\n")
    (tmp_path / "src" / "understudy").mkdir(parents=True)
    (tmp_path / "src" / "understudy" / "room").symlink_to("../../room")
    # when it is installed
    script.install("compress")
    # then no start compiles it again
    assert 1 == len(list((tmp_path / "room" / "__pycache__").glob("module.*.pyc")))


def test_further_extras_are_added_to_the_same_environment(script: ModuleType) -> None:
    script.install("compress")
    script.install("compress,dev,spark")
    assert [MADE, INSTALLED, INSTALLED] == script.steps
    assert script.is_installed("compress")
    assert script.is_installed("compress,spark")


def test_a_changed_project_file_is_installed_again(script: ModuleType, tmp_path: Path) -> None:
    # given an installation; when pyproject.toml changes
    script.install("compress")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.9.10"\n')
    # then it counts as missing, but the environment is kept
    assert not script.is_installed("compress")
    script.install("compress")
    assert [MADE, INSTALLED, INSTALLED] == script.steps


def test_settings_of_linters_are_no_reason_to_install_again(script: ModuleType, tmp_path: Path) -> None:
    script.install("compress")
    with open(tmp_path / "pyproject.toml", "a") as file:
        file.write("\n[tool.ruff]\nline-length = 120\n")
    assert script.is_installed("compress")


def test_an_interrupted_installation_is_made_again_from_nothing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # given an installation that was interrupted inside pip and left a file behind
    record = script.run_step

    def interrupted(command: list[str], what: str) -> None:
        record(command, what)
        if what == INSTALLED:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(script, "run_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            script.install("compress")
    leftover = tmp_path / ".venv" / "half-a-package"
    leftover.write_text("")
    # when it runs again
    assert not script.is_installed("compress")
    script.install("compress")
    # then the environment is a new one
    assert [MADE, INSTALLED, MADE, INSTALLED] == script.steps
    assert not leftover.exists()


def test_a_venv_whose_interpreter_is_gone_is_made_again(script: ModuleType, tmp_path: Path) -> None:
    script.install("compress")
    (tmp_path / ".venv" / "bin" / "python").unlink()
    script.install("compress")
    assert [MADE, INSTALLED, MADE, INSTALLED] == script.steps


def test_two_at_once_install_once(script: ModuleType) -> None:
    # given two first uses at the same time; when both are done
    both = [threading.Thread(target=script.install, args=("compress",)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
    # then only one of them worked
    assert [MADE, INSTALLED] == script.steps


def test_no_new_enough_interpreter_is_one_line_that_names_what_to_install(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "interpreter_facts", lambda path: ((3, 9, 2), "/usr"))
    with pytest.raises(script.Refused, match=r"needs Python 3\.11 or newer.*python3\.11-venv"):
        script.find_interpreter()


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ({"own": 3.0, "debian": 2.0, "newest": 4.0}, "debian"),
        ({"own": 2.2, "debian": 2.0, "newest": 4.0}, "own"),  # as quick as the quickest, within what can be measured
        ({"own": None, "debian": 3.0, "newest": 2.0}, "newest"),
        ({"own": None, "debian": None, "newest": None}, "own"),
    ],
)
def test_of_several_interpreters_the_first_quick_one_is_taken(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float | None], taken: str
) -> None:
    # given interpreters in the order of preference, the first of which is disturbed when it is measured first
    disturbed = ["own"]
    usable = [(name, (3, 11, 2)) for name in seconds]

    def measured(path: str) -> float | None:
        if path in disturbed and seconds[path] is not None:
            disturbed.remove(path)
            return 9.0
        return seconds[path]

    monkeypatch.setattr(script, "usable_interpreters", lambda: usable)
    monkeypatch.setattr(script, "interpreter_seconds", measured)
    # when one is chosen
    assert (taken, (3, 11, 2)) == script.find_interpreter()


def test_an_interpreter_is_measured_by_its_own_processor_time(script: ModuleType) -> None:
    seconds = script.interpreter_seconds(sys.executable)
    assert seconds is not None
    assert 0 < seconds < 1
    assert script.interpreter_seconds("/bin/false") is None
    assert script.interpreter_seconds("/no/such/python") is None


def test_one_interpreter_under_two_names_counts_once(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = tmp_path / "python3"
    link.symlink_to(sys.executable)
    monkeypatch.setattr(script, "interpreter_candidates", lambda: [sys.executable, str(link), "", "/no/such/python"])
    assert [sys.executable] == [path for path, _ in script.usable_interpreters()]


def test_an_empty_home_is_replaced_by_one_that_exists(script: ModuleType) -> None:
    environment = {"HOME": ""}
    script.give_a_home(environment)
    assert os.path.isdir(environment["HOME"])
