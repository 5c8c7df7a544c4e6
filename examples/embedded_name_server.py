"""A name server with a controller in one process, inside one's own trio program (``enableControllerInNamesrv``).

.venv/bin/python examples/embedded_name_server.py /tmp/names 9876 9878
"""

from __future__ import annotations

import sys

import trio

from understudy.controller.api import Properties, open_controller
from understudy.namesrv.api import NameServer, NamesrvConfig, real_world


async def main(
    folder: str,
    namesrv_port: int,
    controller_port: int,
    *,
    task_status: trio.TaskStatus[NameServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    world = real_world()
    keys = {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{controller_port}",  # one controller; three of them survive one
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": f"{folder}/controller",
    }
    controller = open_controller(world, Properties(keys, "my settings"))
    config = NamesrvConfig(kv_config_path=f"{folder}/kvConfig.json", config_store_path=f"{folder}/namesrv.properties")
    server = NameServer(world, config, "127.0.0.1", namesrv_port, controller=controller)
    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(server.run)
        print(f"name server at {host}:{port}, controller at 127.0.0.1:{controller_port}")
        task_status.started(server)
        await trio.sleep_forever()  # the rest of your program


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
