"""A peer may have a container read regular files below the folders for them, and nothing else of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from understudy.container.broker_files import AddBrokerError, asked_file
from understudy.container.config import ContainerOptions
from understudy.runtime.disk import RealDisk


def options(folder: Path | None = None, **keys: str) -> ContainerOptions:
    made, _ = ContainerOptions.from_properties({"listenPort": "0", **keys})
    made.container.rocketmq_home = None
    made.path = str(folder / "container.conf") if folder is not None else None
    return made


@pytest.mark.parametrize("path", ["/dev/zero", "/etc/passwd", "/proc/self/environ", "/dev", "../../../etc/passwd"])
def test_other_files_of_the_host_are_refused_unread(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AddBrokerError, match=r"no regular file below|properties empty") as refused:
        asked_file(path, options(tmp_path), RealDisk())
    assert "root:" not in str(refused.value)


def test_links_and_pipes_are_followed_before_they_are_judged(tmp_path: Path) -> None:
    inside = tmp_path / "conf"
    inside.mkdir()
    (inside / "link.conf").symlink_to("/etc/passwd")
    os.mkfifo(inside / "pipe.conf")
    (tmp_path / "outside.conf").write_text("brokerName=a\n")
    (inside / "good.conf").write_text("brokerName=a\n")
    (tmp_path / "way-in").symlink_to(inside)
    for name in ("link.conf", "pipe.conf", "../outside.conf"):
        with pytest.raises(AddBrokerError, match="addBrokerFolders"):
            asked_file(str(inside / name), options(inside), RealDisk())
    assert asked_file(str(tmp_path / "way-in" / "good.conf"), options(inside), RealDisk()) == str(inside / "good.conf")


def test_where_files_may_lie(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("brokerName=a\n")
    paths = {"brokerConfigPaths": f"{tmp_path}/b.conf"}
    for allowed in (options(tmp_path), options(None, **paths), options(None, addBrokerFolders=f"/nowhere:{tmp_path}")):
        assert asked_file(str(file), allowed, RealDisk()) == str(file)
    with pytest.raises(AddBrokerError, match="/nowhere"):
        asked_file(str(file), options(tmp_path, addBrokerFolders="/nowhere"), RealDisk())
    assert {"addBrokerFolders", "adminAddresses"} <= options().black_list()
