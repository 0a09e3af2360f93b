"""The embedded API server over HTTP: a raw asyncio client with 16 connections in a second process.

Goals, client and server on two cores: 5,000 creates/s and 10,000 gets/s.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store

CONNECTIONS = 16
OBJECTS = 8_000
_PODS = "/api/v1/namespaces/default/pods"
_AGENT = "bench/1.0"
_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"job-name": "train", "muster.dev/gang": "g-1"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.test/train:1",
                "env": [{"name": f"VAR_{i}", "value": str(i)} for i in range(4)],
                "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1000Gi"}},
            }
        ],
        "nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"},
        "restartPolicy": "Never",
    },
}
_PATCH = b'{"metadata":{"annotations":{"muster.dev/step":"%d"}}}'
_MERGE = "application/merge-patch+json"
_JSON = "application/json"


def run() -> dict[str, float]:
    """Requests and watch events a second."""
    context = multiprocessing.get_context("spawn")
    with ApiServer(Store(SystemClock(), event_log_capacity=4 * OBJECTS)) as server:
        ours, theirs = context.Pipe()
        client = context.Process(target=_client, args=(server.url, theirs), daemon=True)
        client.start()
        try:
            if not ours.poll(60):
                raise TimeoutError("the benchmark client did not answer")
            result: dict[str, float] = ours.recv()
        finally:
            client.join(5)
            client.terminate()
    return result


def _client(url: str, answer: Connection) -> None:
    answer.send(asyncio.run(_measure(url.removeprefix("http://"))))


async def _measure(address: str) -> dict[str, float]:
    names = [f"pod-{i:05}" for i in range(OBJECTS)]
    bodies = [json.dumps({**_POD, "metadata": {**_POD["metadata"], "name": name}}).encode() for name in names]
    watched = asyncio.create_task(_count_events(address, 2 * OBJECTS))
    creates = await _rate(address, len(bodies), lambda i: _request(address, "POST", _PODS, bodies[i], _JSON))
    gets = await _rate(address, 2 * OBJECTS, lambda i: _request(address, "GET", f"{_PODS}/{names[i % OBJECTS]}"))
    patch = await _rate(
        address, OBJECTS, lambda i: _request(address, "PATCH", f"{_PODS}/{names[i]}", _PATCH % i, _MERGE)
    )
    await watched
    events = await _watch_rate(address)
    lists = await _rate(address, 20, lambda _: _request(address, "GET", f"{_PODS}?limit=500"))
    return {
        "creates_per_s": creates,
        "gets_per_s": gets,
        "patches_per_s": patch,
        "watch_events_per_s": events,
        "lists_of_500_per_s": lists,
    }


def _request(address: str, method: str, path: str, body: bytes = b"", media: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: {_AGENT}\r\nAccept: */*\r\n"
    if body:
        head += f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def _rate(address: str, count: int, request: Callable[[int], bytes]) -> float:
    """Requests a second over all connections, each waiting for its answer before the next."""
    numbers = iter(range(count))
    requests = [request(i) for i in range(count)]
    start = time.perf_counter()
    await asyncio.gather(*(_worker(address, numbers, requests) for _ in range(CONNECTIONS)))
    return count / (time.perf_counter() - start)


async def _worker(address: str, numbers: Any, requests: list[bytes]) -> None:
    reader, writer = await _connect(address)
    for number in numbers:
        writer.write(requests[number])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(head.decode())
        if b"chunked" in head:
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
        else:
            at = head.lower().index(b"content-length:") + 15
            await reader.readexactly(int(head[at : head.index(b"\r", at)]))
    writer.close()


def _connect(address: str) -> Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.partition(":")
    return asyncio.open_connection(host, int(port), limit=1 << 24)


async def _count_events(address: str, wanted: int) -> None:
    """Follow a live watch through the writes, so that they are measured with somebody looking."""
    seen = 0
    async for chunk in _watch(address, f"{_PODS}?watch=1&resourceVersion=3&timeoutSeconds=60"):
        seen += chunk.count(b'{"type":"')
        if seen >= wanted:
            return


async def _watch_rate(address: str) -> float:
    """Events a second when a watch replays the log."""
    start, seen = time.perf_counter(), 0
    async for chunk in _watch(address, f"{_PODS}?watch=1&resourceVersion=3&timeoutSeconds=60"):
        seen += chunk.count(b'{"type":"')
        if seen >= 2 * OBJECTS:
            break
    return seen / (time.perf_counter() - start)


async def _watch(address: str, path: str) -> AsyncIterator[bytes]:
    reader, writer = await _connect(address)
    writer.write(_request(address, "GET", path))
    while chunk := await reader.read(1 << 20):
        yield chunk
    writer.close()


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:>22} {value:12,.0f}")
