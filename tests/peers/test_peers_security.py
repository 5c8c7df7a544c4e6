"""Real clients with an access key work at servers that ask for signatures; without one they are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peer_processes
import pytest
import trio
from peer_processes import PeerCluster

from understudy.mqclient.api import SessionOptions
from understudy.mqclient.session import Session, open_session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.world import real_world
from understudy.security.signature import Credentials
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

OPEN = "open"
NOBODY = "16 username cannot be null."
HERE = Path(__file__).parent
ROOT = Credentials("rocketmq", "12345678")
KEYS = """
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"rocketmq","password":"12345678"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"innersecret"}
"""
CLIENT = {"SMOKE_ACCESS_KEY": "smoker", "SMOKE_SECRET_KEY": "smokesecret"}
RULES = {
    "Topic:Smoke*": ["Pub", "Sub", "Get"],
    "Topic:go_*": ["Pub", "Sub", "Get", "Create"],
    "Group:*": ["Sub", "Get"],
}


@pytest.fixture(scope="module")
def closed_cluster(port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerCluster]:
    """A name server and a broker that ask for signatures, and a user who may send and read topics of smoke tests.

    The broker registers with a second name server, too, the open one, which answers everybody, as all of
    the reference do: so clients without a key come as far as the broker.
    """
    folder = tmp_path_factory.mktemp("closed")
    servers, addresses = {}, []
    for name, keys in (("namesrv", KEYS), (OPEN, "")):
        port = port_blocks.take()
        addresses.append(f"127.0.0.1:{port}")
        text = peer_processes.filled_template("namesrv", PORT=port, DIR=folder / name) + keys
        servers[name] = peer_processes.server(peer_processes.OURS, "namesrv", name, folder / name, text)
    port = port_blocks.take() + 10
    text = peer_processes.filled_template(
        "broker", NAME="broker-a", PORT=port, HA_PORT=port + 2, NAMESRV=";".join(addresses), DIR=folder / "broker-a"
    )
    servers["broker-a"] = peer_processes.server(
        peer_processes.OURS, "broker", "broker-a", folder / "broker-a", text + KEYS
    )
    broker = f"127.0.0.1:{port}"
    with peer_processes.running(*servers.values()):
        trio.run(make_user, addresses, broker)
        yield PeerCluster(addresses[0], {"broker-a": broker}, servers, addresses[1])


async def make_user(
    namesrvs: Sequence[str],
    broker: str,
    topics: tuple[str, ...] = ("SmokeCpp", "SmokeJava", "SmokeJavaScript", "SmokeGo"),
) -> None:
    """Make the user at *broker* and the first of *namesrvs*, and topics that all of these know."""
    async with open_session(real_world(), namesrvs[0], SessionOptions(credentials=ROOT)) as session:
        for address in (namesrvs[0], broker):
            user = {"username": "smoker", "password": "smokesecret"}
            entries = [{"resource": each, "actions": ["Pub", "Sub", "Get"], "decision": "Allow"} for each in RULES]
            acl = {"subject": "User:smoker", "policies": [{"entries": entries}]}
            await session.call(address, RequestCode.AUTH_CREATE_USER, {"username": "smoker"}, json.dumps(user).encode())
            await session.call(
                address, RequestCode.AUTH_CREATE_ACL, {"subject": "User:smoker"}, json.dumps(acl).encode()
            )
        fields = {"defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": "false"}
        for topic in topics:
            ext = {"topic": topic, "topicFilterType": "SINGLE_TAG", **fields}
            await session.call(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            for namesrv in namesrvs:
                await eventually(lambda: known(session, namesrv, topic))  # noqa: B023 - waited for before the next one


async def known(session: Session, namesrv: str, topic: str) -> bool:
    accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    answer = await session.call(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, accept=accept)
    return answer.code == ResponseCode.SUCCESS


def play(command: list[str], **environment: str) -> dict[str, Any]:
    return peer_processes.run_client(command, limit_s=240, **environment)[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the package holds a library for Linux only")
def test_clients_with_an_access_key_work_and_others_do_not(
    closed_cluster: PeerCluster, place_of_peer: Callable[[str], Path], tmp_path: Path
) -> None:
    # given the C++, the JavaScript and the Go client, each with the user's key and without any; these others know from
    # an open name server where the broker is
    unsigned, nobody = closed_cluster.open_namesrv, tmp_path / "nobody"
    nobody.mkdir()
    cpp = [str(place_of_peer("cpp")), str(HERE / "smoke_cpp.py"), closed_cluster.namesrv, "SmokeCpp", "GID_cpp", "5"]
    modules = str(place_of_peer("node"))
    script = ["node", str(HERE / "smoke_javascript.js"), closed_cluster.namesrv, "SmokeJavaScript", "GID_js", "5"]
    go = [str(place_of_peer("go")), closed_cluster.namesrv, "go_push"]
    with ThreadPoolExecutor() as threads:
        runs = {
            name: threads.submit(play, command, **environment)
            for name, command, environment in (
                ("cpp", cpp, {"HOME": str(tmp_path), **CLIENT}),
                ("cpp without", [*cpp[:2], unsigned, *cpp[3:]], {"HOME": str(nobody)}),
                ("js", script, {"NODE_PATH": modules, **CLIENT}),
                ("js without", [*script[:2], unsigned, *script[3:]], {"NODE_PATH": modules}),
                ("go", go, {"SMOKE_TOPIC": "SmokeGo", **CLIENT}),
                ("go without", [go[0], unsigned, *go[2:]], {"SMOKE_TOPIC": "SmokeGo"}),
            )
        }
        found = {name: run.result() for name, run in runs.items()}
    # then those with a key sent and consumed everything, and the others nothing, with the reference's code where the
    # client tells it: C++ in its log, Go in its error, and JavaScript nowhere
    for name in ("cpp", "js"):
        result = found[name]
        assert (True, 5, 5, 0) == tuple(result.get(key) for key in ("ok", "sent", "consumed", "duplicated")), found
        assert (False, 0) == (found[f"{name} without"]["ok"], found[f"{name} without"].get("sent", 0))
    assert (True, "20 sent and consumed") == (found["go"]["ok"], found["go"]["detail"]), found
    assert (False, "CODE: 16, DESC: username cannot be null.") == (
        found["go without"]["ok"],
        found["go without"]["detail"],
    )
    for _ in range(4):  # it sends once, and gives up when its connection is not there at once
        told = "".join(log.read_text(errors="replace") for log in (nobody / "logs" / "rocketmq-cpp").glob("*.log*"))
        if "error code:" in told:
            break
        assert play([*cpp[:2], unsigned, *cpp[3:]], HOME=str(nobody))["ok"] is False
    assert "error remark:username cannot be null., error code:16" in told
    assert found["js without"]["error"].startswith("Send [4] times, still failed"), found


@pytest.mark.slow
def test_a_java_client_with_an_access_key_works_and_one_without_is_refused(
    closed_cluster: PeerCluster, java_home: Path
) -> None:
    # given the Java client with the user's key, and without any at either name server
    command = ["java", "-cp", f"{java_home}/lib/*", str(HERE / "SmokeSigned.java")]
    places = {"signed": closed_cluster.namesrv, "closed": closed_cluster.namesrv, OPEN: closed_cluster.open_namesrv}
    found = {
        name: play([*command, namesrv, "broker-a", "SmokeJava", "5"], **(CLIENT if name == "signed" else {}))
        for name, namesrv in places.items()
    }
    # then one sends, pulls and consumes
    assert {"queues": 4, "sent": 5, "pulled": 5, "started": 1, "consumed": 5} == found["signed"], found
    # and the others are refused with the reference's code: by the name server, or by the broker that they know of
    assert (NOBODY, 0) == (found["closed"]["queues"], found["closed"]["consumed"]), found
    assert (NOBODY, NOBODY, 0) == tuple(found[OPEN][each] for each in ("sent", "pulled", "consumed")), found


@pytest.mark.slow
def test_a_grpc_client_in_any_zone_signs_within_the_window(
    port_blocks: PortBlocks, place_of_peer: Callable[[str], Path], tmp_path: Path
) -> None:
    # given a proxy beside a broker that asks for signatures, with every setting as it is shipped
    python, port = place_of_peer("grpc-python"), port_blocks.take()
    namesrv, broker, file = f"127.0.0.1:{port}", port + 10, tmp_path / "rmq-proxy.json"
    file.write_text(json.dumps({"grpcServerPort": port + 1, "remotingListenPort": 0}))
    text = peer_processes.filled_template("namesrv", PORT=port, DIR=tmp_path / "namesrv") + KEYS
    first = peer_processes.server(peer_processes.OURS, "namesrv", "namesrv", tmp_path / "namesrv", text)
    text = peer_processes.filled_template(
        "broker", NAME="broker-a", PORT=broker, HA_PORT=broker + 2, NAMESRV=namesrv, DIR=tmp_path / "broker-a"
    )
    second = peer_processes.server(peer_processes.OURS, "broker", "broker-a", tmp_path / "broker-a", text + KEYS)
    second.command += ["--enable-proxy", "-pc", str(file)]
    second.boot_mark = "rocketmq-proxy startup successfully"
    zones = {"SmokeEast": "<+14>-14", "SmokeWest": "<-12>12"}
    with peer_processes.running(first, second):
        trio.run(make_user, [namesrv], f"127.0.0.1:{broker}", tuple(zones))
        command = [str(python), str(HERE / "smoke_grpc_python.py"), f"127.0.0.1:{port + 1}", "normal"]
        # when it writes the time of its zone and calls it UTC
        for topic, zone in zones.items():
            found = play(command, SMOKE_TOPIC=topic, TZ=zone, **CLIENT)
            assert found["ok"] is True, (topic, found)


@pytest.mark.slow
def test_the_real_mqadmin_signs_with_its_file(closed_cluster: PeerCluster, java_home: Path, tmp_path: Path) -> None:
    # given the tool with its file of keys, and without
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: rocketmq\nsecretKey: '12345678'\n")
    command = ["-cp", f"{java_home}/lib/*", "org.apache.rocketmq.tools.command.MQAdminStartup", "listUser"]
    command += ["-n", closed_cluster.namesrv, "-b", closed_cluster.brokers["broker-a"]]
    printed = []
    for home in (tmp_path, tmp_path / "none"):
        java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Drocketmq.home.dir={home}", f"-Duser.home={tmp_path}"]
        environment = peer_processes.peer_environment()
        done = subprocess.run([*java, *command], capture_output=True, text=True, timeout=90, env=environment)
        printed.append(done.stdout + done.stderr)
    # then it lists the users, and is refused with the reference's code and words
    assert all(name in printed[0] for name in ("rocketmq", "inner", "smoker")), printed[0][-2000:]
    assert "CODE: 16" in printed[1] and "username cannot be null" in printed[1], printed[1][-2000:]
