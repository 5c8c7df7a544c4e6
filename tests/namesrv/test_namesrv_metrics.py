"""What a name server shows when somebody scrapes, alone and with a controller inside."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from understudy.namesrv.config import NamesrvConfig, read_config
from understudy.namesrv.metrics import collect, read_settings
from understudy.programs.mqnamesrv import main
from understudy.runtime.exposition import exposition_pieces
from understudy.runtime.load import Load
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks


@contextmanager
def name_server(folder: Path, text: str, *serves: bytes) -> Iterator[None]:
    """Run a name server; it has said that it has booted, and whatever else is named in *serves*."""
    path = folder / "namesrv.conf"
    path.write_text(f"bindAddress=127.0.0.1\nkvConfigPath={folder}/kv.json\n{text}")
    command = [str(Path(sys.executable).parent / "mqnamesrv"), "-c", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        missing = {b"boot success", *serves}
        while missing:
            line = process.stdout.readline()
            assert line, "the name server ended"
            missing -= {each for each in missing if each in line}
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


async def test_groups_members_and_topics_are_shown() -> None:
    async with LocalCluster(brokers=2) as cluster:
        table = cluster.name_server.table
        text = b"".join(exposition_pieces(collect(table, 0, Load()))).decode()
    assert "rocketmq_namesrv_broker_groups 2.0\n" in text
    assert 'rocketmq_waiting_bytes_limit{kind="outgoing"} 5.36870912e+08\n' in text
    assert "rocketmq_namesrv_broker_groups_without_master 0.0\n" in text
    assert 'rocketmq_namesrv_brokers{broker_set="broker-a",cluster="DefaultCluster"} 1.0\n' in text
    topics = re.search(r"^rocketmq_namesrv_topics (\d+)\.0$", text, re.MULTILINE)
    assert topics is not None
    assert int(topics[1]) > 5
    await trio.lowlevel.checkpoint()


def test_a_name_server_serves_its_metrics_when_asked_to(tmp_path: Path, port_blocks: PortBlocks) -> None:
    port, metrics = port_blocks.middles(2)
    keys = f"metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\nmetricsPromExporterPort={metrics}\n"
    with name_server(tmp_path, f"listenPort={port}\n{keys}metricsLabel=zone:z1\n"):
        assert 'rocketmq_namesrv_broker_groups{zone="z1"} 0' in scrape(metrics)


def test_a_controller_inside_shows_both_on_one_port(tmp_path: Path, port_blocks: PortBlocks) -> None:
    port, metrics, api, raft = port_blocks.middles(4)
    keys = (
        f"listenPort={port}\nmetricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\n"
        f"metricsPromExporterPort={metrics}\nenableControllerInNamesrv=true\ncontrollerDLegerGroup=g\n"
        f"controllerDLegerPeers=n0-127.0.0.1:{api}\ncontrollerRaftPeers=n0-127.0.0.1:{raft}\n"
        f"controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path}/store\n"
    )
    with name_server(tmp_path, keys, b"metrics served", b"understudy.controller serving"):
        text = scrape(metrics)
        assert re.search(r"^role\{.*peer_id=\"n0\"", text, re.MULTILINE)
        assert "rocketmq_namesrv_broker_groups" in text


def test_wrong_settings_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"^n\.conf:1: metricsPromExporterPort=many: expected a port from 0 to 65535$"
    ):
        read_settings(parse_properties("metricsPromExporterPort=many\n", "n.conf"))
    path = tmp_path / "namesrv.conf"
    path.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\nmetricsExporterType=GRAPHITE\n")
    assert main(["-c", str(path)]) == 1
    assert f"{path}:3: metricsExporterType=GRAPHITE is none of" in capsys.readouterr().err


def test_the_keys_are_known_and_not_shown() -> None:
    config, warnings = read_config(parse_properties("metricsExporterType=PROM\nmetricsLabel=a:b\n", "file"))
    assert warnings == []
    assert config == NamesrvConfig()
