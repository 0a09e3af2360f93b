"""Which refusals of the API are told of, of what, and for how long."""

from typing import Any

import pytest

from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.refused_writes import FORGOTTEN_S, TOLD_AFTER, RefusedWrites, refusal_of
from fleet.actions import (
    Action,
    Announce,
    EvictPod,
    KeepHardFence,
    LiftHardFence,
    PatchNode,
    PublishLayouts,
    ReleasePod,
    SaveClaim,
    SaveGang,
    StartJob,
)
from fleet.snapshot import HardFence, WriteRefusal
from providers.kube import wire
from providers.kube.batches import Replace
from providers.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError, TooManyRequests
from providers.kube.errors import Unreachable as NoAnswer
from tests.support.fleets import NOW, P5, A, FleetBuilder, catalog, gang, gang_pod, offering, ready_claim

CLAIM = ready_claim(offering(FleetBuilder().pool().build(), catalog(), "h100", P5.name, A, "on-demand"), "m0")
GANG = gang("g")
POD = gang_pod(GANG, "p", node=CLAIM.node)
START = StartJob(GANG.job, "1", GANG.uid, GANG.workload)
KEEP = KeepHardFence("ns", {"cpu": 1}, takes_back=False)
LIFT = LiftHardFence(HardFence("ns", ours=True))
BUDGET = TooManyRequests("Cannot evict pod", causes=(wire.Cause(reason="DisruptionBudget"),))
NO = WriteRefusal("Forbidden", "no")


def mirror() -> Mirror:
    made = Mirror("c")
    made.gangs.observe(Replace({f"ns/{GANG.workload}": GANG}, "1"))
    made.claims.observe(Replace({"m0": CLAIM}, "1"))
    return made


@pytest.mark.parametrize(
    ("action", "error", "reason"),
    [
        (START, Forbidden("no"), "Forbidden"),
        (START, Invalid("no"), "Invalid"),
        (START, ServerError("failed calling webhook", code=500), "ServerError"),
        (START, Conflict("stale"), None),
        (START, NotFound("gone"), None),
        (START, NoAnswer("no answer"), None),
        (START, TooManyRequests("slow down"), None),
        (EvictPod(POD), BUDGET, "PodDisruptionBudget"),
        (PublishLayouts("x"), NotFound("no namespace"), "NotFound"),
        (KEEP, Forbidden("no"), "Forbidden"),
        (KEEP, Conflict("conflict with kubectl"), "Conflict"),
        (KEEP, NotFound("no namespace"), None),
        (KEEP, Forbidden("it ends", causes=(wire.Cause(reason="NamespaceTerminating"),)), None),
        (LIFT, Conflict("stale"), None),
        (Announce(GANG.job, "x", "x"), Forbidden("no"), None),
    ],
)
def test_what_there_is_to_tell(action: Action, error: KubeError, reason: str | None) -> None:
    found = refusal_of(action, error)
    assert (found.reason if found else None) == reason
    if found is not None:
        assert str(error) in found.message


@pytest.mark.parametrize(
    ("action", "subject", "stops"),
    [
        (START, "gang/uid-g", True),
        (SaveGang(GANG), "gang/uid-g", True),
        (ReleasePod(POD, CLAIM.node, CLAIM.node), "gang/uid-g", True),
        (EvictPod(POD), "claim/m0", False),
        (PatchNode(CLAIM.node), "claim/m0", False),
        (SaveClaim(CLAIM), "claim/m0", False),
        (PublishLayouts("x"), "layouts", True),
        (KEEP, "namespace/ns", False),
        (LIFT, "namespace/ns", False),
        (PatchNode("of nobody"), None, False),
    ],
)
def test_what_a_write_is_about(action: Action, subject: str | None, stops: bool) -> None:
    writes, known = RefusedWrites(), mirror()
    for _ in range(TOLD_AFTER):
        writes.failed(Failed(action, "no", refusal=NO), known, NOW)
    assert [it.subject for it in writes] == ([subject] if subject else [])
    assert list(writes.starts_refused()) == ([subject] if subject and stops else [])


def test_it_is_told_after_a_few_in_a_row_and_again_when_the_api_says_something_else() -> None:
    writes, known = RefusedWrites(), mirror()
    other = WriteRefusal("Forbidden", "something else")
    told = [writes.failed(Failed(START, "no", refusal=it), known, NOW) for it in (NO, NO, NO, NO, other, other)]
    assert [it.refusal if it else None for it in told] == [None, None, NO, None, other, None]


@pytest.mark.parametrize(
    "ends",
    [
        lambda writes, known: writes.done(Done(START), known),
        lambda writes, _known: writes.forget(NOW + FORGOTTEN_S),
    ],
    ids=["it succeeds", "nobody tries it any more"],
)
def test_it_ends(ends: Any) -> None:
    writes, known = RefusedWrites(), mirror()
    for _ in range(TOLD_AFTER):
        writes.failed(Failed(START, "no", refusal=NO), known, NOW)
    writes.done(Done(SaveGang(GANG)), known)
    writes.forget(NOW + FORGOTTEN_S - 1)
    assert list(writes) != [], "another write that succeeds says nothing of this one"
    ends(writes, known)
    assert list(writes) == []


def test_a_failure_without_a_refusal_is_none() -> None:
    writes = RefusedWrites()
    assert writes.failed(Failed(START, "no answer"), mirror(), NOW) is None
