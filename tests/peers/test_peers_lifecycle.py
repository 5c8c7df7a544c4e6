"""Processes come and go under real clients: boot lines, two name servers, a killed broker, a restart of everything."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import peer_processes
import pytest
from peer_processes import AdminConsole, PeerCluster, filled_template, server
from peer_requests import await_registered, await_routed, await_true, table

from understudy.remoting.codes import RequestCode
from understudy.testkit.port_blocks import PortBlocks

UNDISTURBED = 200  # how many messages a producer sends before the next thing happens to it
#: How a producer sends until its result is asked for.
UNTIL_ASKED = ("--warmup", "2", "--seconds", "240", "--until-closed")


def await_more(address: str, topic: str, limit_s: float = 60) -> None:
    """Wait until a broker has stored :data:`UNDISTURBED` more messages of a topic."""

    def stored() -> int:
        queues = table(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})["offsetTable"].values()
        return sum(queue["maxOffset"] - queue["minOffset"] for queue in queues)

    wanted = stored() + UNDISTURBED
    await_true(lambda: stored() >= wanted, limit_s, f"{wanted} messages of {topic} at {address}")


@pytest.mark.covers("R96", "R98")
def test_boot_lines_name_the_server_and_its_address(cluster: PeerCluster) -> None:
    # given servers that were started from configuration files; when their output is read
    namesrv, broker = (cluster.servers[name].output() for name in ("namesrv", "broker-a"))
    # then each printed the line that operators and scripts wait for
    assert re.search(
        r"^The Name Server boot success\. serializeType=JSON, address 0\.0\.0\.0:\d+", namesrv, re.MULTILINE
    )
    line = rf"^The broker\[broker-a, {re.escape(cluster.brokers['broker-a'])}\] boot success\. serializeType=JSON"
    assert re.search(line, broker, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.covers("R97", "R100", "R115")
def test_clients_live_through_the_death_of_a_name_server_and_of_one_master_of_two(
    admin: AdminConsole, servers_kind: str, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # given two name servers and two masters, each with a file of its own, and a topic on both masters
    ports = [port_blocks.take() for _ in range(2)]
    namesrvs = ";".join(f"127.0.0.1:{port}" for port in ports)
    servers = {
        f"namesrv-{port}": server(
            servers_kind,
            "namesrv",
            f"namesrv-{port}",
            tmp_path / f"namesrv-{port}",
            filled_template("namesrv", PORT=port, DIR=tmp_path / f"namesrv-{port}"),
        )
        for port in ports
    }
    addresses: dict[str, str] = {}
    for name in ("broker-a", "broker-b"):
        port = port_blocks.take() + 10
        keys = {"NAME": name, "PORT": port, "HA_PORT": port + 2, "NAMESRV": namesrvs, "DIR": tmp_path / name}
        servers[name] = server(servers_kind, "broker", name, tmp_path / name, filled_template("broker", **keys))
        addresses[name] = f"127.0.0.1:{port}"
    topic, threads = "LifeTopic", 2
    each_namesrv = [f"127.0.0.1:{port}" for port in ports]
    with peer_processes.running(*servers.values()):
        for namesrv in each_namesrv:
            await_registered(namesrv, addresses)
        created = admin.printed(namesrvs, f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4")
        assert created.count("success.") == 2, created
        for namesrv in each_namesrv:
            await_routed(namesrv, topic, addresses)
        # when one name server and then one master are killed while a Java producer sends
        load = peer_processes.LoadClient("send", namesrvs, "--topic", topic, "--threads", str(threads), *UNTIL_ASKED)
        load.await_measuring()
        servers[f"namesrv-{ports[0]}"].kill()
        await_more(addresses["broker-b"], topic)
        servers["broker-b"].kill()
        # then sends go on at the other master
        await_more(addresses["broker-a"], topic)
        sent = load.result(limit_s=60)
        # and when the killed servers are back, a new group gets every acknowledged message
        servers[f"namesrv-{ports[0]}"].start().await_boot()
        servers["broker-b"].start().await_boot()
        for namesrv in each_namesrv:
            await_routed(namesrv, topic, addresses)
        wanted = sent["acked_with_warmup"]
        group = peer_processes.LoadClient(
            "consume", namesrvs, "--topic", topic, "--count", str(wanted), "--timeout", "120"
        )
        result = group.result(limit_s=160)
        # one send of each thread may have been stored while its acknowledgement got lost
        assert wanted <= result["count"] <= wanted + 2 * threads, result


@pytest.mark.slow
@pytest.mark.covers("SL-05")
def test_topics_messages_and_offsets_survive_a_restart_of_everything(
    java_home: Path, servers_kind: str, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # given a cluster, and a driver that asks for its restart by making a file
    asked, done = tmp_path / "restart-asked", tmp_path / "restart-done"
    command = f"touch {asked}; until [ -e {done} ]; do sleep 0.1; done"
    with peer_processes.peer_cluster(servers_kind, servers_kind, tmp_path, port_blocks) as cluster:
        ended: list[int] = []

        def restart() -> None:
            if not peer_processes.await_file(asked, limit_s=240):
                return
            ended.extend(one.stop() for one in reversed(cluster.servers.values()))
            for one in cluster.servers.values():
                one.start().await_boot()
            await_registered(cluster.namesrv, cluster.brokers)
            done.touch()

        restarting = threading.Thread(target=restart)
        restarting.start()
        # when it sends and consumes, everything is stopped and started, and it sends and consumes again
        results = peer_processes.run_interop(cluster.namesrv, ["--restart-cmd", command, "cluster_restart"])
        restarting.join(240)
        # then the servers ended cleanly and nothing was lost
        assert set(ended) <= {0, 143}, ended
        assert len(cluster.servers) == len(ended)
        assert results["cluster_restart"]["ok"], results["cluster_restart"]["detail"]


@pytest.mark.slow
@pytest.mark.covers("R101", "SL-08")
def test_a_broker_that_is_stopped_or_killed_under_load_keeps_what_it_acknowledged(
    java_home: Path, servers_kind: str, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    topic, threads = "StopTopic", 8
    acknowledged = 0
    folder = tmp_path / "cluster"
    sync = {"flushDiskType": "SYNC_FLUSH"}
    with peer_processes.peer_cluster(servers_kind, servers_kind, folder, port_blocks, **sync) as cluster:
        broker = cluster.servers["broker-a"]
        codes: list[int] = []
        # given a producer that sends with synchronous flush; when the broker is stopped with SIGTERM, then with SIGKILL
        for end in (lambda: codes.append(broker.stop()), broker.kill):
            timing = ("--threads", str(threads), *UNTIL_ASKED)
            load = peer_processes.LoadClient("send", cluster.namesrv, "--topic", topic, *timing)
            load.await_measuring()
            await_more(cluster.brokers["broker-a"], topic)
            end()
            acknowledged += load.result(limit_s=60)["acked_with_warmup"]
            broker.start().await_boot()
            await_registered(cluster.namesrv, cluster.brokers)
        # then SIGTERM ended it cleanly, and every acknowledged message is still there
        assert set(codes) <= {0, 143}, codes
        assert acknowledged > 0
        wanted = ("--topic", topic, "--count", str(acknowledged), "--timeout", "120")
        got = peer_processes.LoadClient("consume", cluster.namesrv, *wanted).result(limit_s=160)
        assert acknowledged <= got["count"], got
