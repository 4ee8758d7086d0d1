#!/usr/bin/env python3
"""A server of completions whose times are known: the first piece of a stream comes after FIRST ms, each of the others EVERY ms after the one
before. Clients that measure it can be held against that, whatever else the machine does.

usage: paced_server.py PORT [FIRST] [EVERY]
"""

import asyncio
import json
import sys


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    first, every = (float(sys.argv[i]) / 1000 if len(sys.argv) > i else default for i, default in ((2, 0.2), (3, 0.02)))
    loop = asyncio.get_running_loop()
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            if " /v1/completions " not in head:
                status = b"200 OK" if " /health " in head else b"404 Not Found"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                continue
            due = loop.time() + first
            tokens = json.loads(body)["max_tokens"]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

            def send(data: str) -> None:
                event = f"data: {data}\n\n".encode()
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))

            for _ in range(tokens):
                await asyncio.sleep(due - loop.time())
                send('{"choices":[{"index":0,"text":" x"}]}')
                due += every
            send(json.dumps({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": tokens}}))
            send("[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
