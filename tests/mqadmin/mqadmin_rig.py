"""Runs a command of mqadmin in a simulated cluster."""

from __future__ import annotations

import io

from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.testkit.sim.cluster import SimCluster


async def shell(cluster: SimCluster, line: str, *, as_json: bool = False) -> str:
    """Return what the command *line* prints."""
    stream = io.StringIO()
    words = line.split()
    command = load_commands()[words[0]]
    values = parse(command.all_options, words[1:])
    world = cluster.client_world("operator")
    await run_command(command, values, cluster.name_servers, Output(as_json, stream), world)
    return stream.getvalue()
