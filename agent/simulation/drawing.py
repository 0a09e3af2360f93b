"""Made-up fleets, made-up work for them and changes to them, each drawn of one generator of random numbers."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache
from random import Random
from typing import Any, Final

import yaml

from agent.clouds import DEFAULT, cloud_provider
from agent.demo.jobs import Manifest, job, training
from agent.simulation.history import Doc
from fleet.offerings.declared import catalog_checks
from fleet.offerings.listing import CatalogListing
from fleet.policy.checks import unreadable_checks
from fleet.snapshot import Catalog
from model.fleet import Fleet
from model.kinds.base import API_VERSION
from model.loader import InvalidFleet, load
from providers.sim.clouds import cloud_simulator

Docs = dict[str, Doc]
"""Declarations by `Kind/name`."""
GPU: Final = "nvidia.com/gpu"
GPUS: Final[Mapping[str, int]] = {"p5.48xlarge": 8, "p4de.24xlarge": 8, "g6.12xlarge": 4, "g5.12xlarge": 4}
"""Instance types of the pools of GPUs -> how many a machine has."""
CPU_TYPES: Final = ("c6i.xlarge", "m6i.xlarge")
MIG_TYPE: Final = "p4de.24xlarge"
CUTS: Final[Mapping[str, Mapping[str, int]]] = {
    "thin": {"1g.10gb": 7},
    "middle": {"2g.20gb": 3},
    "thick": {"3g.40gb": 2},
}
"""MIG layouts of an A100 with 80 GB."""
ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")
NAMESPACES: Final = ("t", "u", "v")
PRIORITIES: Final[Mapping[str, int]] = {"high": 1000, "normal": 100, "low": 10}


@cache
def sold() -> Catalog:
    """The catalogue of the package, of the types that made-up fleets use: a small market is a quick one."""
    whole = cloud_provider(DEFAULT).catalog(cloud_simulator(DEFAULT).region)
    kept = {*GPUS, *CPU_TYPES}
    return replace(
        whole,
        types={name: kind for name, kind in whole.types.items() if name in kept},
        offers=tuple(offer for offer in whole.offers if offer.instance_type.name in kept),
    )


def doc(kind: str, name: str, **spec: Any) -> Doc:
    """A declaration."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def text_of(docs: Docs) -> str:
    """The declarations as the file of a repository."""
    return yaml.dump_all(docs.values(), Dumper=yaml.CSafeDumper, sort_keys=False)


@lru_cache(maxsize=32)
def loaded(text: str) -> Fleet | None:
    """The fleet of a file; None where it is invalid, or asks for what is not on sale.

    Kept, because the laws read again what was drawn.
    """
    try:
        return load({"fleet.yaml": text.encode()}, further=(*catalog_checks(CatalogListing(sold())), unreadable_checks))
    except InvalidFleet:
        return None


def _put(docs: Docs, made: Doc) -> None:
    docs[f"{made['kind']}/{made['metadata']['name']}"] = made


def _of_kind(docs: Docs, kind: str) -> list[Doc]:
    return [it for it in docs.values() if it["kind"] == kind]


# -- fleets -----------------------------------------------------------------------------------------------------------


def drawn_fleet(rng: Random) -> Docs:
    """A fleet that loads: a policy without rails, 1 to 3 pools, teams in a tree or beside each other, their queues."""
    while loaded(text_of(docs := _fleet(rng))) is None:
        pass
    return docs


def _fleet(rng: Random) -> Docs:
    docs: Docs = {}
    _put(docs, doc("FleetPolicy", "policy", guardRails=_no_rails()))
    for name, value in PRIORITIES.items():
        _put(docs, doc("PriorityClass", name, value=value))
    for number in range(rng.randint(1, 3)):
        kind = "gpu" if number == 0 else rng.choice(("gpu", "gpu", "mig", "cpu"))
        _put(docs, _pool(rng, docs, f"p{number}", kind))
    teams = NAMESPACES[: rng.choice((1, 2, 2, 3))]
    if len(teams) > 1 and rng.random() < 0.7:
        quotas = {"p0": {"guaranteed": {GPU: str(rng.choice((0, 8, 16)))}} if rng.random() < 0.5 else {}}
        _put(docs, doc("Team", "org", namespaces=[], quotas={name: it for name, it in quotas.items() if it}))
    for name in teams:
        _put(docs, _team(rng, docs, name))
        _put(docs, _queue(rng, docs, name))
    return docs


def _no_rails() -> Doc:
    of_day = ("maxNodesRemoved", "maxPercentRemoved", "maxNodesAdded", "maxUsdPerHourAdded", "maxGangsEvicted")
    lifted = dict.fromkeys((*of_day, "maxNodesReplaced", "maxUsdPerHourExposed"), "Unlimited")
    return {**lifted, "allowEmptyFleet": True, "perDay": dict.fromkeys(of_day, "Unlimited")}


def _pool(rng: Random, docs: Docs, name: str, kind: str) -> Doc:
    policies = ("WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized")
    spec: Doc = {
        "instanceTypes": rng.sample(sorted(GPUS), rng.choice((1, 1, 2))),
        "zones": rng.sample(ZONES, rng.choice((1, 2, 3))),
        "capacityTypes": rng.choice((["on-demand"], ["on-demand"], ["spot", "on-demand"], ["spot"])),
        "limits": rng.choice(
            ({}, {"nodes": rng.randint(1, 6)}, {"nodes": 3}, {"usdPerHour": rng.choice((30, 120, 250))})
        ),
        "disruption": {
            "consolidationPolicy": rng.choice(policies),
            "consolidateAfter": rng.choice(("30s", "60s", "5m")),
            "budgets": [{"nodes": rng.choice(("100%", "100%", 1, 2))}],
        },
    }
    if kind == "cpu":
        spec["instanceTypes"] = list(CPU_TYPES)
    if kind == "mig":
        chosen = rng.sample(sorted(CUTS), rng.choice((1, 2)))
        for cut in chosen:
            _put(docs, doc("MigLayout", cut, models={"a100-80gb": [{"devices": "all", "profiles": dict(CUTS[cut])}]}))
        spec |= {"instanceTypes": [MIG_TYPE], "sharing": {"mig": {"layouts": chosen}}}
    if rng.random() < 0.1 and kind == "gpu":
        spec |= {"template": {"expireAfter": rng.choice(("20m", "40m"))}}
    return doc("NodePool", name, **spec)


def _team(rng: Random, docs: Docs, name: str) -> Doc:
    quotas = {
        pool["metadata"]["name"]: _quota(rng, pool, docs) for pool in _of_kind(docs, "NodePool") if rng.random() < 0.85
    }
    spec: Doc = {"namespaces": [name], "quotas": quotas}
    if "Team/org" in docs and rng.random() < 0.85:
        spec["parent"] = "org"
    if rng.random() < 0.1:
        spec["budget"] = {"usdPerMonth": float(rng.choice((5, 50, 500)))}
    return doc("Team", name, **spec)


def _quota(rng: Random, pool: Doc, docs: Docs) -> Doc:
    resources = _resources(pool, docs)
    quota: Doc = {"guaranteed": {name: str(rng.choice(amounts)) for name, amounts in resources.items()}}
    for limit in ("borrowingLimit", "lendingLimit"):
        if rng.random() < 0.25:
            quota[limit] = {name: str(rng.choice((0, amounts[1]))) for name, amounts in resources.items()}
    return quota


def _resources(pool: Doc, docs: Docs) -> dict[str, tuple[int, ...]]:
    """What a pool has to give -> amounts that make sense."""
    mig = pool["spec"].get("sharing", {}).get("mig")
    if mig is not None:
        cuts = [docs[f"MigLayout/{name}"]["spec"]["models"]["a100-80gb"][0]["profiles"] for name in mig["layouts"]]
        return {f"nvidia.com/mig-{profile}": (0, 14, 28, 56) for cut in cuts for profile in sorted(cut)}
    if pool["spec"]["instanceTypes"] == list(CPU_TYPES):
        return {"cpu": (4, 8, 16, 32)}
    return {GPU: (0, 8, 16, 24, 32)}


def _queue(rng: Random, docs: Docs, name: str) -> Doc:
    flavors = list(docs[f"Team/{name}"]["spec"]["quotas"]) or ["p0"]
    spec: Doc = {"team": name, "flavors": rng.sample(flavors, rng.randint(1, len(flavors)))}
    if rng.random() < 0.25:
        spec["order"] = "StrictFIFO"
    if rng.random() < 0.3:
        spec["preemption"] = {
            "withinQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaim": rng.choice(("Never", "LowerPriority", "Any")),
        }
    if rng.random() < 0.2:
        spec["onNodeFailure"] = "Evict"
    return doc("Queue", name, **spec)


# -- work -------------------------------------------------------------------------------------------------------------


def drawn_work(rng: Random, docs: Docs, name: str) -> Manifest:
    """One gang that some flavor of its queue could hold, most of the time: a Job or a JobSet."""
    queue = rng.choice(_of_kind(docs, "Queue"))
    team = docs[f"Team/{queue['spec']['team']}"]
    namespace, priority = team["spec"]["namespaces"][0], rng.choice(("normal", "normal", "low", "high"))
    if rng.random() < 0.15:
        made = training(name, namespace, priority, workers=rng.choice((1, 2)), gpus=rng.choice((4, 8)))
    else:
        run_s = rng.choice((None, None, None, 240.0, 900.0))
        requests = _requests(rng, docs, rng.choice(queue["spec"]["flavors"]))
        made = job(name, namespace, priority, pods=rng.choice((1, 1, 2, 2, 3, 4)), requests=requests, run_s=run_s)
        made["spec"]["backoffLimit"] = rng.choice((0, 0, 1, 6))
        if rng.random() < 0.1:
            made["metadata"]["annotations"] = {"muster.dev/do-not-disrupt": "true"}
    made["metadata"]["labels"]["muster.dev/queue"] = queue["metadata"]["name"]
    return made


def _requests(rng: Random, docs: Docs, flavor: str) -> dict[str, str]:
    resource = rng.choice(sorted(_resources(docs[f"NodePool/{flavor}"], docs)))
    if resource == GPU:
        most = max(GPUS[kind] for kind in docs[f"NodePool/{flavor}"]["spec"]["instanceTypes"])
        return {GPU: str(rng.choice((most, most, most // 2, 1)))}
    return {resource: str(rng.choice((1, 1, 2)))}


# -- changes ----------------------------------------------------------------------------------------------------------


def drawn_change(rng: Random, docs: Docs) -> Docs:
    """Another fleet that loads, 1 or 2 changes away."""
    for _ in range(20):
        tried = deepcopy(docs)
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice(CHANGES)(rng, tried)
        if loaded(text_of(tried)) is not None:
            return tried
    return docs


def drawn_mistake(rng: Random, docs: Docs) -> str:
    """A file that is refused."""
    return rng.choice(
        (
            "kind: [",
            text_of({**docs, "Queue/lost": doc("Queue", "lost", team="nobody", flavors=["nowhere"])}),
            text_of({**docs, "NodePool/odd": doc("NodePool", "odd", instanceTypes=["p99.huge"])}),
            text_of(
                {**docs, "Team/odd": doc("Team", "odd", namespaces=["odd"], quotas={"p0": {"guaranteed": {GPU: "-1"}}})}
            ),
        )
    )


def _spec(rng: Random, docs: Docs, kind: str) -> Doc:
    found: Doc = rng.choice(_of_kind(docs, kind))["spec"]
    return found


def _label_machines(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "NodePool").setdefault("template", {})["labels"] = {"rack": rng.choice(("r1", "r2", "r3"))}


def _limit(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "NodePool")["limits"] = rng.choice(({}, {"nodes": rng.randint(1, 5)}, {"usdPerHour": 120}))


def _zones(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "NodePool")["zones"] = rng.sample(ZONES, rng.choice((1, 2)))


def _disrupt(rng: Random, docs: Docs) -> None:
    disruption = _spec(rng, docs, "NodePool")["disruption"]
    disruption["consolidationPolicy"] = rng.choice(("WhenEmpty", "WhenEmptyOrUnderutilized"))
    disruption["budgets"] = [{"nodes": rng.choice(("100%", 1))}]


def _capacity_types(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "NodePool")["capacityTypes"] = rng.choice((["on-demand"], ["spot", "on-demand"], ["spot"]))


def _requote(rng: Random, docs: Docs) -> None:
    quotas = _spec(rng, docs, "Team").get("quotas") or {}
    for flavor in sorted(quotas):
        quotas[flavor] = _quota(rng, docs[f"NodePool/{flavor}"], docs)


def _stop(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "Queue")["stopPolicy"] = rng.choice(("None", "Hold", "Hold", "HoldAndDrain"))


def _budget(rng: Random, docs: Docs) -> None:
    _spec(rng, docs, "Team")["budget"] = {"usdPerMonth": float(rng.choice((5, 50, 5000)))}


def _hold_and_relabel(rng: Random, docs: Docs) -> None:
    """What runs has drifted and may not start again."""
    _label_machines(rng, docs)
    _spec(rng, docs, "Queue")["stopPolicy"] = "Hold"


CHANGES: Final[tuple[Callable[[Random, Docs], None], ...]] = (
    _label_machines,
    _limit,
    _zones,
    _disrupt,
    _capacity_types,
    _requote,
    _stop,
    _budget,
    _hold_and_relabel,
)
