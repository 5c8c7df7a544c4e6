"""An asyncio web service that takes orders over HTTP and sends them to RocketMQ.

.venv/bin/python examples/web_service.py 127.0.0.1:9876 8080
curl --data 'two apples' http://127.0.0.1:8080/
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from understudy.mqclient.api import ClientError, message
from understudy.mqclient.asyncio import Producer, open_producer


async def answer(producer: Producer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next((int(line[15:]) for line in head.splitlines() if line.startswith("content-length:")), 0)
        order = await reader.readexactly(length)
        try:
            sent = await producer.send(message("Orders", order))
            status, text = "201 Created", sent.message_id
        except ClientError as error:  # one line for a person: no broker, an empty order, a time-out ...
            status, text = "503 Service Unavailable", str(error)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def service(name_servers: str, port: int) -> AsyncIterator[asyncio.Server]:
    async with open_producer(name_servers, "web") as producer:
        server = await asyncio.start_server(lambda *streams: answer(producer, *streams), "127.0.0.1", port)
        async with server:
            yield server


async def main(name_servers: str, port: int) -> None:
    async with service(name_servers, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
