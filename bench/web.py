"""The agent's page over 10,000 machines and 10,000 gangs, and what fifty viewers cost the brain beside it."""

import http.client
import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from aiohttp import web

from agent.http import status_listener
from agent.listener import HttpListener
from agent.web.access import OpenGate
from agent.web.pages import Pages
from agent.web.seen import PageWatcher, Scope
from agent.web.server import WebPages
from bench import cluster
from bench.decisions import DecisionWorld
from fleet.snapshot import Gang, GangState, JobRef, Snapshot
from model.fleet import Fleet
from providers.kube.memory import settle_heap

GANGS, CHANGED, VIEWERS, TURNS, ROUNDS = 10_000, 50, 50, 12, 8
SIZE, TIMES = cluster.ClusterSize(nodes=1_000, gangs=50), 10
"""What the brain beside the page decides on; pages are made of so many times that."""
ADDRESSES = {"overview": "/", "queues": "/queues", "gangs": "/gangs", "machines": "/machines", "money": "/money"}
_VIEWERS = """
import http.client, sys, threading, time
port, viewers = int(sys.argv[1]), int(sys.argv[2])
addresses = ["/", "/queues", "/gangs", "/machines", "/money"]
def watch(number):
    path, known, have = addresses[number % len(addresses)], "0", ""
    while True:
        try:
            live = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            live.request("GET", "/live", headers={"Last-Event-ID": known})
            answer = live.getresponse()
            while line := answer.readline():
                if line.startswith(b"data: "):
                    known = line[6:].strip().decode()
                    one = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    one.request("GET", path, headers={"Accept-Encoding": "gzip", **({"X-Have": have} if have else {})})
                    one.getresponse().read()
                    have = have or "nothing"
                    one.close()
        except OSError:
            time.sleep(0.5)
for number in range(viewers):
    threading.Thread(target=watch, args=(number,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


class Healthy:
    """An agent that is well."""

    def healthy(self) -> str:
        return ""

    def ready(self) -> str:
        return ""

    def exposition(self) -> bytes:
        return b""


def run() -> dict[str, float]:
    """First bytes, sizes and updates of pages (milliseconds, KiB), and how a turn fares with fifty viewers."""
    world = DecisionWorld(SIZE)
    world.brain.turn()
    fleet = world.sync.fleet
    if fleet is None:
        raise RuntimeError(f"no fleet is in force: {world.sync.state.message}")
    busy = _with_gangs(_grown(world.mirror.snapshot(world.clock.now(), frozenset())))
    settle_heap()
    results = _pages(fleet, busy)
    return results | _beside_the_brain(world)


def _grown(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every machine and gang so many times."""
    claims, nodes, gangs = dict(snapshot.claims), dict(snapshot.nodes), dict(snapshot.gangs)
    for number in range(1, TIMES):
        for name, claim in snapshot.claims.items():
            claims[f"{name}-{number}"] = replace(claim, name=f"{name}-{number}", node=f"{claim.node}-{number}")
        for name, node in snapshot.nodes.items():
            nodes[f"{name}-{number}"] = replace(node, name=f"{name}-{number}")
        for uid, gang in snapshot.gangs.items():
            pins = (replace(it, claim=f"{it.claim}-{number}", node=f"{it.node}-{number}") for it in gang.pins)
            name = f"{gang.workload}-{number}"
            gangs[f"{uid}-{number}"] = replace(gang, uid=f"{uid}-{number}", workload=name, pins=tuple(pins))
    return replace(snapshot, claims=claims, nodes=nodes, gangs=gangs)


def _with_gangs(snapshot: Snapshot) -> Snapshot:
    """The snapshot with as many gangs as there are to be; those that are added wait."""
    one = next(iter(snapshot.gangs.values()))
    waiting = (_waiting(one, number) for number in range(GANGS - len(snapshot.gangs)))
    return replace(snapshot, gangs=snapshot.gangs | {gang.uid: gang for gang in waiting})


def _waiting(one: Gang, number: int) -> Gang:
    uid, name = f"waiting-{number}", f"train-{number:05}"
    job = JobRef("batch/v1", "Job", one.namespace, name, uid)
    made = replace(one, uid=uid, workload=f"job-{name}", job=job, queue=f"queue-{number % cluster.TEAMS}")
    why = "needs 16 more nvidia.com/gpu of train: asks 16, 0 available"
    return replace(made, state=GangState.PENDING, reason="WaitingForQuota", message=why, pins=(), flavors={})


class _Patient:
    """A clock by which nobody waits for the page's share of time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1000.0
        return self.now_s


def _pages(fleet: Fleet, snapshot: Snapshot) -> dict[str, float]:
    watcher = PageWatcher()
    pages = Pages(watcher, _Patient())
    began_s = time.process_time()
    watcher.turned(fleet, snapshot)
    pages.executor.submit(int).result()  # behind what is prepared before anybody looks
    results = {"prepared_cpu_ms": 1000 * (time.process_time() - began_s)}
    snapshot = _changed(snapshot, TIMES)
    watcher.turned(fleet, snapshot)
    with _served(pages) as port:
        for name, address in ADDRESSES.items():
            began_s = time.process_time()
            first_ms, body, _ = _asked(port, address)
            results |= {f"{name}_first_byte_ms": first_ms, f"{name}_kib": len(body) / 1024}
            results[f"{name}_first_cpu_ms"] = 1000 * (time.process_time() - began_s)
        results |= _painted(port)
        _, whole, _ = _asked(port, "/machines", {"X-Have": ""})
        have = ",".join(_hashes(whole))
        updates = []
        for number in range(5):
            snapshot = _changed(snapshot, number)
            watcher.turned(fleet, snapshot)
            updates.append(_asked(port, "/machines", {"X-Have": have}))
        results["machines_update_ms"] = statistics.median(each[2] for each in updates)
        results["machines_update_cpu_ms"] = statistics.median(
            _cpu_ms(fleet, watcher, snapshot, it) for it in range(5, 10)
        )
        results["machines_update_kib"] = statistics.median(len(each[1]) for each in updates) / 1024
        updates = []
        for _ in range(5):
            watcher.turned(fleet, replace(snapshot, now_s=snapshot.now_s + 10))
            updates.append(_asked(port, "/gangs", {"X-Have": "old"}))
        results["gangs_update_ms"] = statistics.median(each[2] for each in updates)
    return results


def _painted(port: int) -> dict[str, float]:
    """Milliseconds from the click until a real Chromium has painted something, of pages made for nobody before.

    Empty where there is no Chromium. The median of three tabs, each with a cache of its own; the address has a query
    that no one else asked for, so that the server makes the page for it.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        return {}
    from playwright.sync_api import sync_playwright

    results = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, address in ADDRESSES.items():
            painted = []
            for number in range(3):
                tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
                tab.goto(f"http://127.0.0.1:{port}{address}?tab={number}", wait_until="load")
                painted.append(float(tab.evaluate(_FIRST_PAINT)))
                tab.context.close()
            results[f"{name}_first_paint_ms"] = statistics.median(painted)
        browser.close()
    return results


_FIRST_PAINT = """() => new Promise(resolve => {
    const told = () => performance.getEntriesByName("first-contentful-paint")[0];
    const ask = () => told() ? resolve(told().startTime) : setTimeout(ask, 20);
    ask();
})"""


def _cpu_ms(fleet: Fleet, watcher: PageWatcher, snapshot: Snapshot, number: int) -> float:
    """CPU of one update of the map, by a reader of its own that has the page: what a busy machine does not change."""
    pages = Pages(watcher, _Patient())
    pages.find("/machines", {}, Scope(), whole=False)
    watcher.turned(fleet, _changed(snapshot, number))
    began_s = time.thread_time()
    pages.find("/machines", {}, Scope(), whole=False)
    return 1000 * (time.thread_time() - began_s)


def _hashes(body: bytes) -> list[str]:
    return [hashed for hashed, _ in json.loads(body)["parts"].values()]


def _changed(snapshot: Snapshot, number: int) -> Snapshot:
    """Some machines, next to each other, have another price."""
    names = list(snapshot.claims)[number * CHANGED : (number + 1) * CHANGED]
    claims = {name: replace(snapshot.claims[name], price_usd_h=1.0) for name in names}
    return replace(snapshot, claims=snapshot.claims | claims)


@contextmanager
def _served(pages: Pages, given: list[int] | None = None) -> Iterator[int]:
    """Serves the page at a port; `given` counts answers."""
    answer = WebPages(pages, OpenGate()).answer

    async def page(request: web.BaseRequest) -> web.StreamResponse:
        if given is not None:
            given[0] += 1
        return await answer(request)

    listener: HttpListener = status_listener(Healthy(), "127.0.0.1", 0, page=page)
    listener.start()
    try:
        yield listener.port
    finally:
        listener.stop()


def _asked(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[float, bytes, float]:
    """Milliseconds to the first byte, the body, milliseconds to the last one."""
    began_s = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    first_s = time.perf_counter()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
    return 1000 * (first_s - began_s), body, 1000 * (time.perf_counter() - began_s)


# -- beside the brain -------------------------------------------------------------------------------------------------


def _beside_the_brain(world: DecisionWorld) -> dict[str, float]:
    """Milliseconds of turns, as in a quiet cluster that changes all the time, without and with viewers.

    Both are taken in turn (A B A B ...), so that what else the machine does falls on both alike: viewers are a process
    that is stopped meanwhile. The ratio is that of the means: a page that held up one turn would show. Pages that
    viewers were given are counted, since viewers who get nothing cost nothing.
    """
    watcher, given = PageWatcher(), [0]
    world.brain._watchers = [*world.watchers, watcher]
    alone: list[float] = []
    beside: list[float] = []
    _turns_ms(world)
    with _served(Pages(watcher), given) as port:
        command = [sys.executable, "-c", _VIEWERS, str(port), str(VIEWERS)]
        viewers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert viewers.stdout is not None
        viewers.stdout.readline()
        _turns_ms(world)
        given[0] = 0
        try:
            for _ in range(ROUNDS):
                beside += _turns_ms(world)
                viewers.send_signal(signal.SIGSTOP)
                alone += _turns_ms(world)
                viewers.send_signal(signal.SIGCONT)
        finally:
            viewers.kill()
            viewers.wait(10)
    return {
        "turn_alone_ms": statistics.mean(alone),
        "turn_with_viewers_ms": statistics.mean(beside),
        "turn_ratio": statistics.mean(beside) / statistics.mean(alone),
        "turn_median_ratio": statistics.median(beside) / statistics.median(alone),
        "viewer_answers": given[0],
    }


def _turns_ms(world: DecisionWorld) -> list[float]:
    """So many turns, each after some pods have changed; a pause between them, as between ticks."""
    taken = []
    for number in range(TURNS):
        world.churn(number)
        world.clock.advance(1.0)
        began_s = time.perf_counter()
        world.brain.turn()
        taken.append(1000 * (time.perf_counter() - began_s))
        time.sleep(0.25)
    return taken
