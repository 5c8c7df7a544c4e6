"""The notebook of the examples, cell by cell, on the store of a broker of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from understudy.mqclient import blocking
from understudy.mqclient.api import ConsumeFrom, PullConsumerOptions, message
from understudy.testkit.blocking import local_cluster

NOTEBOOK = Path(__file__).parents[2] / "examples" / "stores_in_a_notebook.ipynb"
FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


def test_its_cells_show_topics_and_how_far_groups_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_cluster(folder=str(tmp_path)) as cluster:
        with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
            sent = [producer.send(message("Orders", b"%d" % number)) for number in range(20)]
        with blocking.open_pull_consumer(cluster.namesrv_address, "readers", FIRST) as consumer:
            consumer.subscribe({"Orders": "*"})
            assert consumer.poll(20_000)
    monkeypatch.setenv("STORE", str(tmp_path / "broker-a"))
    monkeypatch.setattr("understudy.spark_tools.session.start", lambda master: spark)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    topics = names["topics"].set_index("topic")["messages"].to_dict()
    assert topics["Orders"] == len(sent)
    lag = names["lag"]
    assert "readers" in set(lag["consumer_group"])
    assert (lag["behind"] >= 0).all()
