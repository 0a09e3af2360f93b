"""Many days of one fleet in one process: what grows shows here."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from agent.simulation.checker import Checker
from agent.simulation.drawing import Docs, drawn_change, drawn_fleet, drawn_work, sold, text_of
from agent.simulation.faults import FAULTS
from agent.simulation.history import HistoryEvent
from agent.simulation.laws.facts import Facts, Violation, is_over
from agent.simulation.operations import PEOPLE, name_of
from agent.simulation.process import Tempo
from agent.simulation.seat import Supervisor
from agent.simulation.world import Simulation
from providers.sim.store import ApiError

DAY_S: Final = 86_400.0
_TEMPO: Final = Tempo(tick_s=60.0, listing_s=60.0, attempts=3, foresees=False)
_JOBS_A_DAY: Final = 12
_RUN_S: Final = (600.0, 1800.0, 7200.0, 14_400.0)
_DAILY: Final = ("interrupt", "new_image", "machine_dies", "crash", "delete_job", "drain", "cordon")


class Day(NamedTuple):
    """How things stand at the end of a day."""

    day: int
    rss_mib: float
    """Memory of this process; -1 where the system does not say."""
    books_bytes: int
    """Of the ConfigMap in which the agent keeps its books."""
    fleetsync_bytes: int
    objects: int
    """In the cluster, events included."""
    claims: int
    pass_ms: float
    """CPU time a turn of the agent took on average, with the simulation around it."""
    machines: int
    """Bought since the beginning."""
    violations: tuple[str, ...]
    """What did not hold that day."""


def lived_days(days: int, seed: int) -> Iterator[Day]:
    """Plays day after day of work, pushes, interruptions, deaths and people, and tells of each."""
    rng = Random(f"days:{seed}")
    docs = drawn_fleet(rng)
    checker, supervisor = Checker(), Supervisor()
    sim = Simulation(catalog=sold(), tempo=_TEMPO, more=[supervisor, checker])
    supervisor.seats = sim.seats
    facts = checker.watch(sim)
    sim.push({"fleet.yaml": text_of(docs)})
    for day in range(1, days + 1):
        told = len(facts.violations)
        began_s, turns = time.process_time(), sim.seats[0].turns
        docs = _one_day(facts, rng, docs, day)
        passed = max(1, sim.seats[0].turns - turns)
        yield _told(sim, day, (time.process_time() - began_s) * 1000.0 / passed, facts.violations[told:])


def _one_day(facts: Facts, rng: Random, docs: Docs, day: int) -> Docs:
    """Lets a day pass; the fleet as it is declared then."""
    sim = facts.sim
    start_s = sim.now_s
    events = [(rng.uniform(0.0, DAY_S), "submit") for _ in range(_JOBS_A_DAY)]
    events += [(rng.uniform(0.0, DAY_S), rng.choice(_DAILY)) for _ in range(3)]
    events += [(rng.uniform(0.0, DAY_S), "push")] * (rng.random() < 0.3)
    for number, (at_s, kind) in enumerate(sorted(events)):
        sim.advance(max(0.0, start_s + at_s - sim.now_s))
        args: dict[str, Any] = {"writes": rng.randint(1, 40), "moment": "before"}
        if kind == "submit":
            args = {"manifest": _ending(rng, drawn_work(rng, docs, f"d{day}-{number}"))}
        elif kind == "push":
            docs = drawn_change(rng, docs)
            args = {"text": text_of(docs)}
        _act(facts, HistoryEvent(at_s, kind, rng.random(), args))
    sim.advance(max(0.0, start_s + DAY_S - sim.now_s))
    _tidy(sim, day)
    return docs


def _ending(rng: Random, manifest: dict[str, Any]) -> dict[str, Any]:
    """The work, with an end."""
    spec = manifest["spec"]
    inner = spec["template"] if "template" in spec else spec["replicatedJobs"][0]["template"]["spec"]["template"]
    notes = inner.setdefault("metadata", {}).setdefault("annotations", {})
    notes["sim.muster.dev/run-seconds"] = str(rng.choice(_RUN_S))
    return manifest


def _act(facts: Facts, event: HistoryEvent) -> None:
    sim = facts.sim
    try:
        effect = (PEOPLE.get(event.kind) or FAULTS[event.kind])(sim, event)
    except ApiError:
        return
    if effect is None:
        return
    facts.happened(event.kind, effect.subjects)
    if effect.undo is not None:
        sim.advance(600.0)
        effect.undo()
        facts.happened(f"{event.kind} is over", effect.subjects)


def _tidy(sim: Simulation, day: int) -> None:
    """Somebody deletes what has ended, and what has not in two days."""
    for kind in ("Job", "JobSet"):
        for job in [it for it in sim.objects(kind) if not it["metadata"].get("ownerReferences")]:
            old = int(name_of(job)[1:].partition("-")[0]) < day - 1
            if is_over(job) or old:
                sim.delete(job)


def _told(sim: Simulation, day: int, pass_ms: float, violations: Sequence[Violation]) -> Day:
    books = sim.object("ConfigMap", "muster-books", "muster-system")
    sync = sim.object("FleetSync", sim.cluster_name)
    return Day(
        day,
        _rss_mib(),
        len(msgspec.json.encode(books)),
        len(msgspec.json.encode(sync)),
        sum(len(sim.store.list(resource)) for resource in sim.store.resources()),
        len(sim.objects("NodeClaim")),
        round(pass_ms, 3),
        len(sim.cloud.ledger()),
        tuple(f"{it.law}: {it.words}" for it in violations),
    )


def _rss_mib() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return -1.0
    return round(pages * 4096 / 2**20, 1)
