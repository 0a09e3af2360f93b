"""A case as it stands between two rounds, and what one round makes of it.

Cases say what they say in two dialects; a `GangScene` is the engine's input in either, rebuilt from the pods' present
states.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.cases import Case
from tests.reference.session.decide import decide
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy
from tests.reference.session.values import Decision, SessionMachine, SessionTopology, Squad


@dataclass(frozen=True, slots=True)
class PodNow:
    """Where a pod is: the scheduler's word for its state, its node and the GPUs it has parts of."""

    state: str
    node: str = ""
    devices: tuple[str, ...] = ()


Pods = Mapping[str, PodNow]


@dataclass(frozen=True, slots=True)
class GangScene:
    """What the engine is given."""

    machines: Sequence[SessionMachine]
    squads: Sequence[Squad]
    ledger: SessionLedger
    policy: Policy
    topologies: Sequence[SessionTopology] = ()


Build = Callable[[Case, Pods, frozenset[str]], GangScene]
"""Case, pods as they are now, groups that have passed the gate since."""


@dataclass(slots=True)
class SceneRound:
    """One round: the pods before and after, and the decision between."""

    before: Pods
    after: Pods
    decision: Decision


@dataclass(slots=True)
class Play:
    """A case played for some rounds."""

    rounds: list[SceneRound] = field(default_factory=list)
    queued: frozenset[str] = frozenset()


def play_round(case: Case, build: Build, pods: Pods, queued: frozenset[str]) -> tuple[SceneRound, frozenset[str]]:
    """Decide once. Pods bear the words of a single pass afterwards; `settle` makes a cluster of it."""
    scene = build(case, pods, queued)
    decision = decide(scene.machines, scene.squads, scene.ledger, scene.policy, scene.topologies)
    after = dict(pods)
    for word, placements in (
        ("Binding", decision.bound),
        ("Pipelined", decision.nominated),
        ("Pipelined", decision.moved),
    ):
        for name, placement in placements.items():
            after[name] = PodNow(word, placement.node, placement.devices)
    for eviction in decision.evicted:
        after[eviction.pod] = replace(after[eviction.pod], state="Releasing")
    return SceneRound(pods, after, decision), queued | set(decision.queued)


def settle(pods: Pods, staying: frozenset[str]) -> Pods:
    """What the cluster makes of it until the next round: what was placed runs, what was let go waits again.

    Pods in `staying` go on leaving.
    """
    after: dict[str, PodNow] = {}
    for name, pod in pods.items():
        if pod.state in {"Binding", "Pipelined", "Bound", "Allocated"}:
            after[name] = replace(pod, state="Running")
        elif pod.state == "Releasing" and name not in staying:
            after[name] = PodNow("Pending")
        else:
            after[name] = pod
    return after


def group_of(case: Case) -> dict[str, str]:
    """Pod -> the name of its group."""
    return {pod_name(pod): pod["podgroup"] for pod in case["pods"]}


def pod_name(pod: Mapping[str, Any]) -> str:
    """The unique name of a pod in a case."""
    name: str = pod.get("name") or pod["id"]
    return name


def initial(case: Case) -> dict[str, PodNow]:
    """The pods as the case gives them."""
    found = {}
    for pod in case["pods"]:
        state = pod.get("state") or pod["phase"]
        node = "" if state == "Pending" else pod.get("node") or ""
        devices = tuple(str(group) for group in pod.get("gpu_groups") or ()) if node else ()
        found[pod_name(pod)] = PodNow(state, node, devices)
    return found
