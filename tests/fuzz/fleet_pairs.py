"""Made-up fleets, made-up work for them, and changes of 1 to 3 fields or declarations: pairs of fleets to plan between.

Everything is drawn of one generator of random numbers: the same seed, the same pair. A fleet is kept as documents by
`Kind/name`; one that does not load is redrawn.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, get_args, get_origin

import yaml

from agent.demo.jobs import Manifest, job, training
from fleet.offerings.declared import catalog_checks
from fleet.offerings.listing import CatalogListing
from model.fleet import Fleet
from model.kinds import KINDS
from model.kinds.base import Spec
from model.kinds.policy import GuardRails
from model.loader import InvalidFleet, load
from tests.agent.scenes import CATALOG, G5, G6, P4DE, Doc, doc
from tests.fuzz.field_values import (
    ALONGSIDE,
    CPU_TYPES,
    DRAWN,
    ELEMENTS,
    GPU,
    ONE_WAY,
    SLICES,
    STARTUP_TAINT,
    STAYS,
    TYPES,
    ZONES,
    DeclaredNames,
    FieldPath,
    parts,
    value_of,
    written,
)

Docs = dict[str, Doc]
_SPECS = {kind.__name__: parts(kind.model_fields["spec"].annotation)[0] for kind in KINDS}
_CHECKS = catalog_checks(CatalogListing(CATALOG))
NAMESPACES = ("t", "u", "v")
OPEN = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]}


def text_of(docs: Docs) -> str:
    return yaml.safe_dump_all(docs.values(), sort_keys=False)


def loaded(docs: Docs) -> Fleet | None:
    """The fleet of the documents; None where they are invalid, or ask for what is not on sale."""
    try:
        return load({"fleet.yaml": text_of(docs).encode()}, further=_CHECKS)
    except InvalidFleet:
        return None


def names_of(docs: Docs) -> DeclaredNames:
    def of(kind: str) -> list[str]:
        return [it["metadata"]["name"] for it in docs.values() if it["kind"] == kind]

    pools = of("NodePool")
    return DeclaredNames(
        pools, of("MigLayout"), of("Team"), of("Queue"), of("PriorityClass"), of("Topology"), [*pools, *of("Flavor")]
    )


def put(docs: Docs, made: Doc) -> None:
    docs[f"{made['kind']}/{made['metadata']['name']}"] = made


# -- a fleet -----------------------------------------------------------------------------------------------------------


def base_fleet(rng: Random) -> Docs:
    """A fleet that loads: pools, teams with their queues, priorities, and up to 4 fields out of the ordinary."""
    while loaded(docs := _plain_fleet(rng)) is None:
        pass
    for _ in range(rng.choice((0, 1, 2, 4))):
        tried = deepcopy(docs)
        change_field(rng, tried, rng.choice(DRAWN))
        if loaded(tried) is not None:
            docs = tried
    return docs


def _plain_fleet(rng: Random) -> Docs:
    docs: Docs = {}
    put(docs, doc("FleetPolicy", "policy", guardRails=no_rails()))
    for name, value in (("high", 1000), ("normal", 100), ("low", 10)):
        put(docs, doc("PriorityClass", name, value=value))
    for number in range(rng.randint(1, 4)):
        add_pool(rng, docs, f"p{number}")
    teams = NAMESPACES[: rng.randint(1, 3)]
    if len(teams) > 1 and rng.random() < 0.5:
        put(docs, doc("Team", "org", namespaces=[], quotas={}))
    for name in teams:
        add_team(rng, docs, name)
        add_queue(rng, docs, name, name)
    if rng.random() < 0.3:
        add_queue(rng, docs, "extra", rng.choice(teams))
    return docs


def no_rails(rails: type[Spec] = GuardRails) -> dict[str, Any]:
    """Guard rails that let everything pass."""
    found: dict[str, Any] = {}
    for name, info in rails.model_fields.items():
        inner = parts(info.annotation)
        lifted = "Unlimited" if "Unlimited" in str(info.annotation) else True
        found[written(name, rails)] = no_rails(inner[0]) if inner else lifted
    return found


def add_pool(rng: Random, docs: Docs, name: str) -> None:
    """A pool of one or two types, mostly of GPUs, at times cut by MIG or of a fixed size."""
    kind = rng.choice(("gpu", "gpu", "gpu", "gpu", "cpu", "mig", "mig", "fixed")) if docs.get("NodePool/p0") else "gpu"
    spec: dict[str, Any] = {
        "instanceTypes": rng.sample(TYPES, rng.choice((1, 1, 2, 3))),
        "zones": rng.sample(ZONES, rng.choice((1, 2, 2, 3))),
        "capacityTypes": rng.choice((["on-demand"], ["on-demand"], ["spot", "on-demand"], ["spot"])),
        "limits": rng.choice(({}, {"nodes": rng.randint(1, 6)}, {"nodes": 4}, {"usdPerHour": rng.choice((30, 120))})),
        "disruption": {
            "consolidationPolicy": rng.choice(("WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized")),
            "consolidateAfter": rng.choice(("30s", "60s", "60s", "5m")),
            "budgets": [{"nodes": rng.choice(("100%", "100%", 1, "10%"))}],
        },
    }
    if kind == "cpu":
        spec["instanceTypes"] = list(CPU_TYPES)
    if kind == "mig":
        spec |= {"instanceTypes": [P4DE], "sharing": {"mig": {"layouts": _two_layouts(rng, docs)}}}
    if kind == "fixed":
        spec |= {"replicas": rng.randint(0, 2), "capacityTypes": ["on-demand"]}
        del spec["limits"]
    elif rng.random() < 0.3:
        spec["weight"] = rng.choice((1, 10))
    put(docs, doc("NodePool", name, **spec))


def _two_layouts(rng: Random, docs: Docs) -> list[str]:
    cuts = {"thin": {"1g.10gb": 7}, "middle": {"2g.20gb": 3}, "thick": {"3g.40gb": 2}}
    chosen = rng.sample(sorted(cuts), rng.choice((1, 2, 2)))
    for name in chosen:
        group = [{"devices": "all", "profiles": cuts[name]}]
        put(docs, doc("MigLayout", name, models={"a100-80gb": group}))
    return chosen


def add_team(rng: Random, docs: Docs, name: str) -> None:
    """A team with quota in most pools, below `org` where that is declared."""
    quotas = {pool: _quota(rng, docs[f"NodePool/{pool}"], docs) for pool in names_of(docs).pools if rng.random() < 0.8}
    spec: dict[str, Any] = {"namespaces": [name], "quotas": quotas}
    if "Team/org" in docs and rng.random() < 0.8:
        spec["parent"] = "org"
    put(docs, doc("Team", name, **spec))


def _quota(rng: Random, pool: Doc, docs: Docs) -> dict[str, Any]:
    mig = pool["spec"].get("sharing", {}).get("mig")
    if mig is None:
        return {"guaranteed": {GPU: str(rng.choice((0, 8, 16, 24, 32, 32)))}}
    groups = [docs[f"MigLayout/{layout}"]["spec"]["models"]["a100-80gb"] for layout in mig["layouts"]]
    profiles = sorted({profile for group in groups for profile in group[0]["profiles"]})
    return {"guaranteed": {f"nvidia.com/mig-{profile}": str(rng.choice((14, 28, 56))) for profile in profiles}}


def add_queue(rng: Random, docs: Docs, name: str, team: str) -> None:
    """A queue of the team with some of the flavors, in any order."""
    flavors = list(docs[f"Team/{team}"]["spec"].get("quotas") or names_of(docs).pools) or ["nowhere"]
    spec: dict[str, Any] = {"team": team, "flavors": rng.sample(flavors, rng.randint(1, len(flavors)))}
    if rng.random() < 0.3:
        spec["order"] = "StrictFIFO"
    if rng.random() < 0.2:
        spec["fairness"] = "DominantShare"
    put(docs, doc("Queue", name, **spec))


# -- work --------------------------------------------------------------------------------------------------------------


def work(rng: Random, docs: Docs, name: str) -> Manifest:
    """One gang: a Job or a JobSet, of whole GPUs, slices or processors, at times with an estimate, elastic or bound."""
    queues = [it for it in docs.values() if it["kind"] == "Queue"]
    queue = rng.choice(queues)["metadata"]["name"] if queues else "t"
    team = docs.get(f"Queue/{queue}", {}).get("spec", {}).get("team", "t")
    namespace = (docs.get(f"Team/{team}", {}).get("spec", {}).get("namespaces") or ["t"])[0]
    priority = rng.choice(("normal", "normal", "low", "high"))
    if rng.random() < 0.15:
        made = training(name, namespace, priority, workers=rng.choice((1, 2)), gpus=8)
        made["metadata"]["labels"]["muster.dev/queue"] = queue
        return made
    run_s = rng.choice((None, None, None, 240.0, 900.0))
    pods = rng.choice((1, 1, 2, 2, 3, 4))
    made = job(name, namespace, priority, pods=pods, requests=_requests(rng, docs, queue), run_s=run_s)
    made["metadata"]["labels"]["muster.dev/queue"] = queue
    said: dict[str, str] = {}
    if run_s is not None:
        said["muster.dev/expected-run-time"] = f"{run_s:.0f}s"
    elif pods > 1 and rng.random() < 0.25:  # one that is admitted with fewer pods takes longer than it has said
        said["muster.dev/job-min-parallelism"] = "1"
    if rng.random() < 0.1:
        said["muster.dev/do-not-disrupt"] = rng.choice(("true", "10m", "1h"))
    if rng.random() < 0.1:
        made["spec"]["backoffLimit"] = 6
    if rng.random() < 0.05:
        made["metadata"]["labels"].pop("muster.dev/queue")
    made["metadata"]["annotations"] = said
    return made


def _requests(rng: Random, docs: Docs, queue: str) -> dict[str, str]:
    """What some flavor of the queue has, most of the time."""
    flavors = docs.get(f"Queue/{queue}", {}).get("spec", {}).get("flavors") or ["p0"]
    pool = docs.get(f"NodePool/{rng.choice(flavors)}")
    if rng.random() < 0.1 or pool is None:
        return {rng.choice((GPU, *SLICES)): "1"}
    mig = pool["spec"].get("sharing", {}).get("mig")
    if mig is not None:
        cuts = [docs[f"MigLayout/{name}"] for name in mig["layouts"] if f"MigLayout/{name}" in docs]
        profiles = sorted(
            {
                profile
                for cut in cuts
                for group in cut["spec"]["models"].values()
                for profile in group[0].get("profiles", {})
            }
        )
        return {f"nvidia.com/mig-{rng.choice(profiles)}": str(rng.choice((1, 1, 2)))} if profiles else {GPU: "8"}
    if pool["spec"].get("instanceTypes") == list(CPU_TYPES):
        return {"cpu": rng.choice(("1", "2"))}
    small = {G5, G6} & set(pool["spec"].get("instanceTypes") or [G5])
    return {GPU: str(rng.choice((1, 2, 4) if small else (2, 4, 8, 8, 8)))}


# -- changes -----------------------------------------------------------------------------------------------------------


def mutated(
    rng: Random, docs: Docs, first: FieldPath | None = None, *, busy: frozenset[str] = frozenset()
) -> tuple[Docs, list[str], int]:
    """Another fleet that loads, what was changed in words, and how many were drawn that did not load.

    `first`: a field to be among the changes, if a value can be found for it that loads. `busy`: what has machines or
    gangs, and is changed before others.
    """
    invalid = 0
    for attempt in range(40):
        tried, words = deepcopy(docs), []
        for number in range(rng.choice((1, 2, 2, 3))):
            wanted = first if number == 0 and attempt < 20 else None
            change = FieldChanger(wanted) if wanted or rng.random() < 0.7 else rng.choice(REDECLARE)
            words.append(change(rng, tried, busy))
        if loaded(tried) is not None:
            return tried, words, invalid
        invalid += 1
    return deepcopy(docs), ["nothing"], invalid


class FieldChanger:
    """Changes one field somewhere: the given one, or any."""

    def __init__(self, field: FieldPath | None = None) -> None:
        self.field = field

    def __call__(self, rng: Random, docs: Docs, busy: frozenset[str]) -> str:
        return change_field(rng, docs, self.field or _any_field(rng, docs), busy)


def _any_field(rng: Random, docs: Docs) -> FieldPath:
    """A field of a declaration that is there, the deeper parts no more often than the others."""
    kind = rng.choice([it["kind"] for it in docs.values() if it["kind"] in _SPECS])
    of_kind = [field for field in DRAWN if field.kind == kind]
    top = rng.choice(sorted({field.path[0] for field in of_kind}))
    return rng.choice([field for field in of_kind if field.path[0] == top])


def change_field(rng: Random, docs: Docs, field: FieldPath, busy: frozenset[str] = frozenset()) -> str:
    """Sets the field of a declaration of its kind, which is made where there is none, or takes it away."""
    having = [key for key, it in docs.items() if it["kind"] == field.kind]
    if not having:
        put(docs, NEW[field.kind](rng, docs))
        having = [key for key, it in docs.items() if it["kind"] == field.kind]
    key = _choose(rng, having, busy)
    holder: Any = docs[key]["spec"]
    names = names_of(docs)
    cls: type[Spec] = _SPECS[field.kind]
    for name in field.path[:-1]:
        holder, cls = _into(rng, names, holder, cls, name)
    last = field.path[-1]
    if last in holder and rng.random() < 0.2 and (field.owner, last) not in STAYS:
        del holder[last]
        return f"{key} -{'.'.join(field.path)}"
    if field.owner in ONE_WAY and rng.random() < 0.7:
        holder.clear()
    holder[last] = value_of(rng, names, field)
    _set_alongside(docs[key]["spec"], field)
    return f"{key} {'.'.join(field.path)}={holder[last]}"


def _set_alongside(spec: dict[str, Any], field: FieldPath) -> None:
    found = ALONGSIDE.get(f"{field.owner}.{field.path[-1]}") or ALONGSIDE.get(field.owner)
    if found is None:
        return
    *way, last = found[0].split(".")
    for name in way:
        spec = spec.setdefault(name, {})
    spec[last] = deepcopy(found[1])


def _choose(rng: Random, keys: Sequence[str], busy: frozenset[str]) -> str:
    """One of the keys, a busy one most of the time."""
    preferred = [key for key in keys if key in busy]
    return rng.choice(preferred if preferred and rng.random() < 0.85 else keys)


def _into(rng: Random, names: DeclaredNames, holder: Any, cls: type[Spec], name: str) -> tuple[Any, type[Spec]]:
    """One step down; what is not there is made."""
    info = next(it for key, it in cls.model_fields.items() if written(key, cls) == name)
    inner = parts(info.annotation)[0]
    key: Any = name
    for shape in _shapes(info.annotation):
        held = holder.get(key) if isinstance(holder, dict) else holder[key]
        if shape is tuple:
            held = list(held or ())
            if not held or rng.random() < 0.25:
                held.append(_element(rng, names, inner) | ({"key": STARTUP_TAINT} if name == "startupTaints" else {}))
            holder[key] = held
            holder, key = held, rng.randrange(len(held))
        else:
            held = dict(held or {})
            place = rng.choice(
                [*held, *((names.flavors or ("h100",)) if inner.__name__ == "FlavorQuota" else ("a100-80gb",))]
            )
            holder[key] = held
            if place not in held:
                made = _element(rng, names, inner)
                held[place] = [made] if inner.__name__ == "DeviceGroup" else made
            holder, key = held, place
    if isinstance(holder, dict) and not isinstance(holder.get(key), dict):
        holder[key] = _element(rng, names, inner)
    return holder[key], inner


def _shapes(annotation: Any) -> list[Any]:
    """The containers (tuple, dict) around the specification of an annotation, the outer ones first."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return []
    origin = get_origin(annotation)
    inner = next(arg for arg in get_args(annotation) if parts(arg))
    return [*([origin] if origin in (tuple, dict) else []), *_shapes(inner)]


def _element(rng: Random, names: DeclaredNames, cls: type[Spec]) -> Any:
    draw = ELEMENTS.get(cls.__name__)
    return deepcopy(draw(rng, names)) if draw else {}


def _new_flavor(rng: Random, docs: Docs) -> Doc:
    return doc("Flavor", "f", nodePools=rng.sample(list(names_of(docs).pools), 1))


def _more_cuts(_rng: Random, _docs: Docs) -> Doc:
    return doc("MigLayout", "more", models={"a100-80gb": [{"devices": "all", "profiles": {"7g.80gb": 1}}]})


def _another_queue(_rng: Random, docs: Docs) -> Doc:
    names = names_of(docs)
    return doc("Queue", "more", team=next(iter(names.teams), "t"), flavors=list(names.flavors)[:1])


def _prices(rng: Random, _docs: Docs) -> Doc:
    return doc("NodeOverlay", "o", requirements=[], priceAdjustment=rng.choice(("+50%", "-10%")))


def _spare_room(rng: Random, docs: Docs) -> Doc:
    """A CapacityBuffer with its template, and a pool that serves pods."""
    pools = list(names_of(docs).pools)
    if pools:
        docs[f"NodePool/{rng.choice(pools)}"]["spec"]["serves"] = ["Gangs", "Pods"]
    asks = {GPU: rng.choice((1, 4, 8))} if rng.random() < 0.8 else {"cpu": 4}
    body = {"spec": {"containers": [{"name": "c", "resources": {"limits": asks}}]}}
    meta = {"name": "room", "namespace": "t"}
    put(docs, {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": body})
    spec = {"podTemplateRef": {"name": "room"}, "replicas": rng.choice((1, 2, 5))}
    version = "autoscaling.x-k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "CapacityBuffer", "metadata": {**meta, "name": "ahead"}, "spec": spec}


NEW: dict[str, Callable[[Random, Docs], Doc]] = {
    "CapacityBuffer": _spare_room,
    "NodeOverlay": _prices,
    "MigLayout": _more_cuts,
    "Flavor": _new_flavor,
    "Topology": lambda _rng, _docs: doc("Topology", "topology", levels=["topology.kubernetes.io/zone"]),
    "NodePool": lambda _rng, _docs: doc("NodePool", "p9", instanceTypes=[TYPES[0]]),
    "Team": lambda _rng, _docs: doc("Team", "v", namespaces=["v"], quotas={}),
    "Queue": _another_queue,
    "PriorityClass": lambda _rng, _docs: doc("PriorityClass", "more", value=7),
    "FleetPolicy": lambda _rng, _docs: doc("FleetPolicy", "policy", guardRails=no_rails()),
}


def _forget(value: Any, name: str, other: str | None = None) -> Any:
    """The value without a name in its lists and tables, or with another one in its place."""
    if isinstance(value, list):
        kept = [_forget(it, name, other) for it in value if it != name]
        at = value.index(name) if name in value else None
        return [*kept[:at], other, *kept[at:]] if at is not None and other else kept
    if isinstance(value, dict):
        moved = {other if key == name and other else key: it for key, it in value.items() if key != name or other}
        return {key: _forget(it, name, other) if it != name or other is None else other for key, it in moved.items()}
    return value


def _with_spec(docs: Docs) -> list[Doc]:
    """All but templates of pods, which name nothing."""
    return [it for it in docs.values() if "spec" in it]


def _remove(rng: Random, docs: Docs, busy: frozenset[str]) -> str:
    """Takes a declaration away, and its name out of the others; the queues of a team go with it."""
    key = _choose(rng, [it for it in docs if not it.startswith("FleetPolicy")], busy)
    name = docs.pop(key)["metadata"]["name"]
    if key.startswith("Team/"):
        for queue in [
            it for it, found in docs.items() if found["kind"] == "Queue" and found["spec"].get("team") == name
        ]:
            del docs[queue]
    if not key.startswith(("Queue/", "Team/")):
        for it in _with_spec(docs):
            it["spec"] = _forget(it["spec"], name)
    return f"-{key}"


def _rename(rng: Random, docs: Docs, busy: frozenset[str]) -> str:
    """Gives a declaration another name; what names it follows."""
    key = _choose(rng, [it for it in docs if not it.startswith("FleetPolicy")], busy)
    renamed: Docs = {}
    for place, it in docs.items():
        if place != key:
            put(renamed, it)
            continue
        it["metadata"]["name"] = name = f"{it['metadata']['name']}x"
        put(renamed, it)
    if not key.startswith("PriorityClass/"):
        for it in _with_spec(renamed):
            namespaces = it["spec"].get("namespaces")
            it["spec"] = _forget(it["spec"], key.partition("/")[2], name)
            if namespaces is not None:
                it["spec"]["namespaces"] = namespaces
    docs.clear()
    docs.update(renamed)
    return f"{key} is called {name}"


def _add(rng: Random, docs: Docs, busy: frozenset[str]) -> str:
    """Declares something more; a pool for everybody."""
    del busy
    what = rng.choice(("pool", "pool", "queue", *sorted(NEW)))
    if what == "queue":
        teams = list(names_of(docs).teams) or ["t"]
        add_queue(rng, docs, "more", rng.choice(teams)) if f"Team/{teams[0]}" in docs else None
        return "+Queue/more"
    if what != "pool":
        made = NEW[what](rng, docs)
        put(docs, made)
        return f"+{made['kind']}/{made['metadata']['name']}"
    add_pool(rng, docs, "p8")
    for it in docs.values():
        if it["kind"] == "Team" and it["spec"].get("quotas"):
            it["spec"]["quotas"]["p8"] = _quota(rng, docs["NodePool/p8"], docs)
        if it["kind"] == "Queue":
            flavors = it["spec"].setdefault("flavors", [])
            flavors.insert(rng.randint(0, len(flavors)), "p8")
    return "+NodePool/p8"


REDECLARE: Sequence[Callable[[Random, Docs, frozenset[str]], str]] = (_remove, _rename, _add)
