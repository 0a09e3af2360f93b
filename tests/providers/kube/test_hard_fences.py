"""The quota of a namespace through the API: written, taken back, left to others, and taken away."""

import random
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from fleet.actions import KeepHardFence, LiftHardFence
from fleet.snapshot import HardFence
from providers.clock import VirtualClock
from providers.kube.actuator import Actuator
from providers.kube.errors import Conflict, Forbidden, Invalid
from providers.kube.objects import HARD_FENCE, decode_hard_fence
from providers.kube.retry import Retrier
from providers.sim.direct import DirectTransport
from providers.sim.store import PatchType, Store
from providers.sim.store.store import Obj

GPU, OURS, MEMORY = "nvidia.com/gpu", "requests.nvidia.com/gpu", "requests.memory"
BOUNDS = {GPU: 32, "cpu": 1500, "memory": 2**33}
WRITTEN = {OURS: "32", "requests.cpu": "1500m", MEMORY: "8Gi"}


class Quotas:
    def __init__(self) -> None:
        clock = VirtualClock()
        self.store = Store(clock)
        self.resource = self.store.resource("ResourceQuota")
        self.store.create(self.store.resource("Namespace"), {"metadata": {"name": "t"}})
        self.hands = Actuator(
            DirectTransport(self.store, clock), Retrier(stop=threading.Event(), rng=random.Random(0)), clock
        )

    def keep(self, *, takes_back: bool = False, **more: int) -> HardFence:
        (written,) = self.hands.perform(KeepHardFence("t", {**BOUNDS, **more}, takes_back))
        assert (written.key, written.value) == ("t", self.seen())
        return self.seen()

    def lift(self, fence: HardFence | None = None) -> None:
        (written,) = self.hands.perform(LiftHardFence(fence or self.seen()))
        assert written.key == "t"

    def others(self, hard: dict[str, Any], manager: str = "kubectl-edit") -> None:
        """Somebody writes bounds; None takes one away."""
        patch = {"spec": {"hard": hard}}
        self.store.patch(self.resource, HARD_FENCE, patch, PatchType.MERGE, namespace="t", field_manager=manager)

    def made(self, hard: dict[str, str]) -> None:
        """Somebody else has made a quota of that name."""
        body = {"metadata": {"name": HARD_FENCE}, "spec": {"hard": hard}}
        self.store.create(self.resource, body, namespace="t", field_manager="kubectl-create")

    def there(self) -> list[Obj]:
        return self.store.list(self.resource, "t")

    def hard(self) -> dict[str, str]:
        (quota,) = self.there()
        found: dict[str, str] = quota["spec"]["hard"]
        return found

    def seen(self) -> HardFence:
        return decode_hard_fence(self.store.read(self.resource, HARD_FENCE, "t").json)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


def test_it_is_written_and_read_back_and_written_again_without_a_change(quotas: Quotas) -> None:
    fence = quotas.keep()
    assert quotas.hard() == WRITTEN
    assert (fence.hard, fence.ours, fence.shared) == (BOUNDS, True, False)
    version = quotas.there()[0]["metadata"]["resourceVersion"]
    quotas.keep(takes_back=True)
    assert quotas.there()[0]["metadata"]["resourceVersion"] == version


def test_a_bound_that_is_not_wanted_any_more_goes(quotas: Quotas) -> None:
    quotas.keep(**{"example.com/fpga": 1})
    assert "requests.example.com/fpga" in quotas.hard()
    quotas.keep(takes_back=True)
    assert quotas.hard() == WRITTEN


def test_bounds_of_others_stay(quotas: Quotas) -> None:
    quotas.keep()
    quotas.others({"pods": "10"})
    fence = quotas.seen()
    assert (fence.hard, fence.ours, fence.shared) == (BOUNDS, True, True)
    quotas.keep(takes_back=True, cpu=2000)
    assert quotas.hard() == {**WRITTEN, "requests.cpu": "2", "pods": "10"}


@pytest.mark.parametrize("edit", [{OURS: "99"}, {OURS: None}, {OURS: "99", MEMORY: "1Gi"}])
def test_what_somebody_changes_is_no_more_ours_until_it_is_taken_back(quotas: Quotas, edit: dict[str, Any]) -> None:
    quotas.keep()
    quotas.others(edit)
    fence = quotas.seen()
    assert GPU not in fence.hard
    assert fence.ours
    with_conflict = any(edit.values())
    if with_conflict:
        with pytest.raises(Conflict, match="kubectl-edit"):
            quotas.keep()
    assert quotas.keep(takes_back=True) == HardFence("t", fence.uid, BOUNDS, ours=True)


def test_one_that_somebody_else_made_is_left_to_them(quotas: Quotas) -> None:
    quotas.made({OURS: "1"})
    fence = quotas.seen()
    assert (fence.hard, fence.ours, fence.shared) == ({}, False, True)
    with pytest.raises(Conflict, match=r"conflict with .kubectl-create"):
        quotas.keep()
    assert quotas.hard() == {OURS: "1"}


def test_beside_bounds_of_others_it_is_written_and_taken_out_again(quotas: Quotas) -> None:
    quotas.made({"pods": "5"})
    fence = quotas.keep()
    assert (fence.ours, fence.shared) == (True, True)
    assert quotas.hard() == {"pods": "5", **WRITTEN}
    quotas.lift()
    assert quotas.hard() == {"pods": "5"}
    assert quotas.seen() == HardFence("t", fence.uid, shared=True)
    quotas.lift(fence)
    assert quotas.hard() == {"pods": "5"}


def test_it_is_deleted_once_and_for_all(quotas: Quotas) -> None:
    fence = quotas.keep()
    quotas.lift()
    assert quotas.there() == []
    quotas.lift(fence)
    assert quotas.there() == []


def test_one_with_bounds_of_others_that_has_gone_is_not_made_anew(quotas: Quotas) -> None:
    fence = quotas.keep()
    quotas.store.delete(quotas.resource, HARD_FENCE, namespace="t")
    quotas.lift(HardFence("t", fence.uid, fence.hard, ours=True, shared=True))
    assert quotas.there() == []


@pytest.mark.parametrize("shared", [False, True])
def test_one_that_has_been_made_anew_meanwhile_stays(quotas: Quotas, shared: bool) -> None:
    fence = quotas.keep()
    quotas.store.delete(quotas.resource, HARD_FENCE, namespace="t")
    quotas.made({OURS: "1"})
    with pytest.raises(Invalid) if shared else nullcontext():  # then the watch shows what is there
        quotas.lift(HardFence("t", fence.uid, fence.hard, ours=True, shared=shared))
    assert quotas.hard() == {OURS: "1"}


def test_a_namespace_that_ends_says_so(quotas: Quotas) -> None:
    held = {"metadata": {"name": "x", "finalizers": ["example.com/stays"]}}
    quotas.store.create(quotas.store.resource("ConfigMap"), held, namespace="t")
    quotas.store.delete(quotas.store.resource("Namespace"), "t")
    with pytest.raises(Forbidden) as refused:
        quotas.keep()
    assert [cause.reason for cause in refused.value.causes] == ["NamespaceTerminating"]
    quotas.lift(HardFence("t", "uid", ours=True))
    assert quotas.there() == []
