"""Pages about work: the overview, the queues with their tree, gangs, one gang, and the journal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent.explanation import explanation_lines, read_words, start_words
from agent.gang_answer import answer_of, in_no_queue_lines
from agent.web.seen import JournalEntry, ToldEvent
from agent.web.view import Looking, PageView, Part, notice, paged
from fleet.explain.machine_tiles import machine_tiles
from fleet.explain.quota_tree import QuotaRow, quota_rows
from fleet.mig.layouts import gpu_part
from fleet.plan.sections import PlanDocument, document, summary
from fleet.quota.queue_binding import binding_of
from fleet.quota.without_queue import left_in_teams
from fleet.snapshot import Gang, GangState, Job, Pod, Snapshot
from fleet.snapshot.lookups import claims_by_pool

SHOWN_FEW: Final = 12
"""Rows of a list on the overview; the rest is behind a link."""
PODS_MOST: Final = 500
EVENTS_SHOWN: Final = 100


def gpus_asked(gang: Gang) -> str:
    """Returns the GPUs and slices that all pods of a gang ask for, in words; empty for none."""
    asked: Counter[str] = Counter()
    for pods in gang.pod_sets:
        for resource, amount in gpu_part(pods.requests).items():
            asked[resource] += amount * pods.count
    return ", ".join(f"{amount} {short_resource(resource)}" for resource, amount in sorted(asked.items()))


def short_resource(resource: str) -> str:
    """Returns a resource as people say it: `GPU`, `mig-1g.10gb`."""
    return {"nvidia.com/gpu": "GPU"}.get(resource, resource.removeprefix("nvidia.com/"))


class GpuRow(NamedTuple):
    """GPUs or slices of one kind of machine."""

    model: str
    resource: str
    total: int
    used: int


def gpu_rows(look: Looking) -> list[GpuRow]:
    """Returns how many GPUs and slices there are, and how many gangs use, by model."""
    total: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    types = look.snapshot.catalog.types
    for tile in machine_tiles(look.fleet, look.snapshot):
        kind = types.get(tile.instance_type)
        for device in tile.devices:
            key = (kind.gpu_name if kind else "") or "unknown", device.resource
            total[key] += device.total
            used[key] += device.used
    return [GpuRow(model, short_resource(name), total[model, name], used[model, name]) for model, name in sorted(total)]


def overview(look: Looking) -> PageView:
    """The page that everything begins with."""
    snapshot = look.snapshot
    machines = Counter(tile.state for tile in machine_tiles(look.fleet, snapshot))
    gangs = look.gangs
    states = Counter(str(gang.state) for gang in gangs)
    waiting = sorted((it for it in gangs if it.state is GangState.PENDING), key=lambda it: (it.created_at_s, it.name))
    short = sorted(pool for pool, until_s in snapshot.shortages.items() if until_s > snapshot.now_s)
    numbers = {
        "machines": sorted(machines.items()),
        "machine_count": sum(machines.values()),
        "gpus": gpu_rows(look),
        "states": sorted(states.items()),
        "gang_count": len(gangs),
        "usd_h": sum(use.usd_h for use in look.used.values()) if look.scope.whole else sum(map(look.usd_h, gangs)),
        "spent_usd": sum(usd for team, usd in snapshot.spent_usd.items() if _own(look, team)),
        "short": short,
        "pools": len(claims_by_pool(snapshot)),
    }
    parts = [
        Part("sync", "sync.html", _sync(look)),
        Part("numbers", "numbers.html", numbers),
        Part("waiting", "waiting.html", {"gangs": waiting[:SHOWN_FEW], "count": len(waiting), "now_s": snapshot.now_s}),
        Part(
            "news", "journal_rows.html", {"title": "Latest decisions", "lines": _lines(look)[:SHOWN_FEW], "more": True}
        ),
    ]
    return PageView("Overview", parts)


def _own(look: Looking, team: str) -> bool:
    return look.scope.whole or team in look.scope.teams(look.fleet)


def _sync(look: Looking) -> Mapping[str, Any]:
    state = look.state
    reason, message = state.standing
    progress = state.convergence
    return {"state": state, "reason": reason, "message": message, "progress": progress, "now_s": look.snapshot.now_s}


# -- queues -----------------------------------------------------------------------------------------------------------


def queues(look: Looking) -> PageView:
    """The quota tree with its queues."""
    rows = _rows(look)
    return PageView("Queues", [Part("tree", "tree.html", {"rows": rows, "now_s": look.snapshot.now_s})])


def _rows(look: Looking) -> Sequence[QuotaRow]:
    """Returns the rows that the viewer may see: of a part of the teams, these and the way down to them."""
    rows = quota_rows(look.fleet, look.snapshot)
    if look.scope.whole:
        return rows
    own = look.scope.teams(look.fleet)
    paths = [row.path for row in rows if row.name in own or (row.is_queue and _pays(look, row.name) in own)]
    return [row for row in rows if any(row.path == path or path.startswith(f"{row.path}/") for path in paths)]


def _pays(look: Looking, queue: str) -> str:
    declared = look.fleet.queues.get(queue)
    return declared.spec.team if declared is not None else queue


def queue(look: Looking) -> PageView | None:
    """One queue: its quota, who waits, who holds it."""
    [name] = look.names
    row = next((row for row in _rows(look) if row.is_queue and row.name == name), None)
    if row is None:
        return None
    waiting = [gang for gang in row.waiting if look.scope.sees(gang)]
    holders = [gang for gang in row.holders if look.scope.sees(gang)]
    declared = look.fleet.queues.get(name)
    values = {"row": row, "declared": declared}
    parts = [
        Part("quota", "queue.html", values),
        Part("waiting", "waiting.html", _listed(look, waiting)),
        Part("holders", "holders.html", {"rows": paged(_with_cost(look, holders), look), "now_s": look.snapshot.now_s}),
    ]
    return PageView(f"Queue {name}", parts)


def _listed(look: Looking, waiting: Sequence[Gang]) -> Mapping[str, Any]:
    shown = paged(waiting, look)
    return {"gangs": shown.rows, "count": len(waiting), "now_s": look.snapshot.now_s}


def _with_cost(look: Looking, gangs: Iterable[Gang]) -> Sequence[tuple[Gang, float]]:
    return [(gang, look.usd_h(gang)) for gang in gangs]


# -- gangs ------------------------------------------------------------------------------------------------------------


def gangs(look: Looking) -> PageView:
    """All gangs, or those of a state, a queue, or whose name holds a word."""
    state, queue_name, word = (look.asked(name) for name in ("state", "queue", "q"))
    found = [
        gang
        for gang in look.gangs
        if (not state or gang.state == state)
        and (not queue_name or gang.queue == queue_name)
        and (word in gang.name or word in gang.workload)
    ]
    values = {
        "rows": paged(found, look),
        "now_s": look.snapshot.now_s,
        "states": list(GangState),
        "state": state,
        "queue": queue_name,
        "word": word,
        "queues": sorted({gang.queue for gang in look.gangs}),
    }
    parts = [Part("filter", "gang_filter.html", values), Part("gangs", "gangs.html", values)]
    if not state and not queue_name and (left := _in_no_queue(look, word)):
        parts.append(Part("left", "jobs_in_no_queue.html", {"rows": paged(left, look), "now_s": look.snapshot.now_s}))
    return PageView("Gangs", parts)


def _in_no_queue(look: Looking, word: str) -> Sequence[Job]:
    """Returns the jobs in namespaces of teams that name no queue and whose name holds a word, by name."""
    seen = look.scope.namespaces
    found = (it for it in left_in_teams(look.fleet, look.snapshot) if seen is None or it.ref.namespace in seen)
    named = ((f"{it.ref.namespace}/{it.ref.name}", it) for it in found)
    return [job for _, _, job in sorted((name, job.ref.uid, job) for name, job in named if word in name)]


class TimelineRow(NamedTuple):
    """What happened to a gang at an instant (epoch seconds)."""

    at_s: float
    what: str
    why: str


def gang(look: Looking) -> PageView | None:
    """One gang: why it waits or runs, what happened when, its pods and machines, its cost; or a job in no queue."""
    namespace, workload = look.names
    found = next(
        (it for it in look.gangs if it.namespace == namespace and workload in {it.workload, it.job.name}), None
    )
    if found is None:
        answer = answer_of(look)
        job = answer.in_no_queue if answer is not None else None
        return notice(f"{job.kind} {job.name}", list(in_no_queue_lines(job))[1:]) if job is not None else None
    snapshot = look.snapshot
    told = look.explanation(found)
    pods = _pods(snapshot, found)
    binding = binding_of(look.fleet, found.namespace, found.queue)
    head = {
        "gang": found,
        "bound": binding.name if binding is not None else "",
        "now_s": snapshot.now_s,
        "gpus": gpus_asked(found),
        "told": told,
        "read": read_words(told),
        "starts": start_words(told.start, told.at_s) if told.start is not None else "",
    }
    tiles = [tile for tile in machine_tiles(look.fleet, snapshot) if found in tile.holders]
    parts = [
        Part("head", "gang.html", head),
        Part("why", "gang_why.html", {"told": told, "lines": list(explanation_lines(told))}),
        Part("timeline", "gang_timeline.html", {"rows": timeline(found, look.journal), "now_s": snapshot.now_s}),
        Part("events", "gang_events.html", {"rows": events_of(found, look.events)}),
        Part("machines", "gang_machines.html", {"tiles": tiles}),
        Part("pods", "gang_pods.html", {"gang": found, "pods": pods[:PODS_MOST], "count": len(pods)}),
    ]
    return PageView(f"Gang {found.name}", parts)


def events_of(gang: Gang, events: Iterable[ToldEvent]) -> Sequence[ToldEvent]:
    """Returns the events about a gang's job or Workload, latest first; what is said of both is told once."""
    own = {(gang.job.kind, gang.job.name), ("Workload", gang.workload)}
    about = (it for it in events if it.event.about.namespace == gang.namespace)
    found = [it for it in about if (it.event.about.kind, it.event.about.name) in own]
    once = {(round(it.at_s), it.event.reason, it.event.message): it for it in found}
    return list(reversed(once.values()))[:EVENTS_SHOWN]


def _pods(snapshot: Snapshot, gang: Gang) -> Sequence[Pod]:
    own = snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ())
    return sorted(own, key=lambda pod: (pod.pod_set, pod.name, pod.uid))


def timeline(gang: Gang, journal: Iterable[JournalEntry]) -> Sequence[TimelineRow]:
    """Returns what is known to have happened to a gang, oldest first; equal instants in the order of its life."""
    flavors = sorted({flavor for each in gang.flavors.values() for flavor in each})
    left = gang.eviction
    stamps = [
        (gang.created_at_s, "submitted", ""),
        (gang.quota_reserved_at_s, "quota reserved", ", ".join(flavors)),
        (gang.admitted_at_s, "admitted", ""),
        *([(left.at_s, "evicted", f"{left.reason}: {left.message}")] if left else []),
        (gang.not_ready_since_s, "pods not ready any more", ""),
        (gang.replacing_since_s, "lost pods are replaced", ""),
    ]
    told = [TimelineRow(at_s, what, why) for at_s, what, why in stamps if at_s]
    for line in journal:
        if line.said.get("gang") == gang.name and line.said.get("event") == "gang":
            why = ": ".join(filter(None, (str(line.said.get("reason", "")), str(line.said.get("message", "")))))
            told.append(TimelineRow(line.at_s, str(line.said.get("state", "")), why))
    return sorted(told, key=lambda row: row.at_s)


# -- the journal and the plan -----------------------------------------------------------------------------------------


class JournalRow(NamedTuple):
    """A line of the journal in words."""

    at_s: float
    event: str
    subject: str
    link: str
    words: str


def journal(look: Looking) -> PageView:
    """What was decided, latest first, with reasons."""
    word, event = look.asked("q"), look.asked("event")
    lines = _lines(look)
    events = sorted({line.event for line in lines})
    found = [it for it in lines if (not event or it.event == event) and (word in it.subject or word in it.words)]
    values = {"word": word, "event": event, "events": events}
    shown = paged(found, look)
    rows = {"title": "Journal", "lines": shown.rows, "rows": shown, "more": False}
    return PageView(
        "Journal", [Part("filter", "journal_filter.html", values), Part("lines", "journal_rows.html", rows)]
    )


def _lines(look: Looking) -> list[JournalRow]:
    """Returns the lines that the viewer may see, latest first; of a part of the teams those about their gangs."""
    named = {gang.name: gang for gang in look.snapshot.gangs.values()}
    uids = {gang.uid: gang for gang in look.snapshot.gangs.values()}
    rows = (_row(line, named, uids, look) for line in reversed(look.journal))
    return [row for row in rows if row is not None]


def _row(line: JournalEntry, named: Mapping[str, Gang], uids: Mapping[str, Gang], look: Looking) -> JournalRow | None:
    said = line.said
    about = str(said.get("gang", ""))
    gang = named.get(about) or uids.get(about)
    if not look.scope.whole:
        namespace = gang.namespace if gang else about.partition("/")[0]
        if "gang" not in said or namespace not in (look.scope.namespaces or ()):
            return None
    subject, link = about, f"gangs/{gang.namespace}/{gang.workload}" if gang else ""
    if "claim" in said:
        subject, link = str(said["claim"]), f"machines/{said['claim']}"
    elif "pool" in said:
        subject, link = str(said["pool"]), ""
    return JournalRow(
        line.at_s,
        str(said.get("event", "")),
        gang.name if gang and gang.uid == subject else subject,
        link,
        "; ".join(_words(said)),
    )


_IN_SUBJECT: Final = frozenset({"event", "gang", "claim"})


def _words(said: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a line says beside its subject, a field each; a reason without its name."""
    for name, value in said.items():
        if name in _IN_SUBJECT or value in ("", [], None):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        yield text if name in {"state", "reason", "message"} else f"{name.replace('_', ' ')} {text}"


def plan(look: Looking) -> PageView:
    """What the last revision that was attempted does, or would do."""
    if not look.scope.whole:
        words = ["A plan names the work of all teams, so it is shown to those who may see all of it."]
        return notice("Plan", words)
    found = look.state.plan
    told: PlanDocument | None = document(found) if found is not None else None
    values = {**_sync(look), "plan": found, "told": told, "summary": summary(found) if found is not None else ""}
    return PageView("Plan", [Part("sync", "sync.html", _sync(look)), Part("plan", "plan.html", values)])
