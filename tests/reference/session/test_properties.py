"""What holds for every decision, whatever is asked: random gangs in random queues, with every kind of ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.session.decide import decide
from tests.reference.session.deserving import DeservingLedger
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy
from tests.reference.session.values import Decision, SessionMachine, Squad
from tests.reference.session.weighted import LedgerRules, ShareQueue, WeightedLedger
from tests.support.session import GPU, job, machine, next_round, pods_of, wrongs

QUEUES = ("a", "b", "c")
RESOURCES = ("cpu", "memory", GPU)
ROUNDS = 12


@dataclass(frozen=True)
class SessionScene:
    """Everything a decision is made of; the ledger is made anew for each."""

    machines: Sequence[SessionMachine]
    squads: Sequence[Squad]
    ledger: str
    quotas: Mapping[str, int]
    policy: Policy

    def decide(self, squads: Sequence[Squad] | None = None) -> Decision:
        return decide(self.machines, squads or self.squads, LEDGERS[self.ledger](self.quotas), self.policy)


def _fair(quotas: Mapping[str, int]) -> SessionLedger:
    """Two queues share a department, the third is on its own."""
    parents = {"a": "top", "b": "top", "c": ""}
    queues = [FairQueue(name, parents[name], quota={GPU: quota}) for name, quota in quotas.items()]
    return FairLedger([FairQueue("top", quota={GPU: quotas["a"] + quotas["b"]}), *queues])


def _weighted(quotas: Mapping[str, int]) -> SessionLedger:
    return WeightedLedger(
        [ShareQueue(name, weight=quota + 1) for name, quota in quotas.items()], RESOURCES, LedgerRules()
    )


def _deserving(quotas: Mapping[str, int]) -> SessionLedger:
    queues = [ShareQueue(name, deserved={GPU: quota, "cpu": 1_000 * quota}) for name, quota in quotas.items()]
    return DeservingLedger(queues, RESOURCES, LedgerRules())


LEDGERS: Mapping[str, Callable[[Mapping[str, int]], SessionLedger]] = {
    "fair": _fair,
    "weighted": _weighted,
    "deserving": _deserving,
}


@st.composite
def scenes(draw: st.DrawFn) -> SessionScene:
    given_machines = [machine(f"n{number}", draw(st.integers(1, 4))) for number in range(draw(st.integers(1, 4)))]
    free = {node.name: node.capacity[GPU] for node in given_machines}
    squads = []
    for number in range(draw(st.integers(1, 7))):
        count, gpus = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        at_least = draw(st.integers(1, count))
        on: list[str] = []
        if draw(st.booleans()):
            for _ in range(count):
                fits = [name for name, left in free.items() if left >= gpus]
                if fits:
                    on.append(draw(st.sampled_from(fits)))
                    free[on[-1]] -= gpus
        if len(on) < at_least:
            for name in on:
                free[name] += gpus
            on = []
        squads.append(
            job(
                f"j{number}",
                draw(st.sampled_from(QUEUES)),
                count,
                gpus=gpus,
                at_least=at_least,
                on=on,
                priority=draw(st.integers(0, 2)),
                preemptible=draw(st.integers(0, 3)) > 0,
                created=number,
            )
        )
    return SessionScene(
        given_machines,
        squads,
        draw(st.sampled_from(sorted(LEDGERS))),
        {name: draw(st.integers(0, 5)) for name in QUEUES},
        Policy(moves=draw(st.booleans()), keep_cores=draw(st.booleans())),
    )


@settings(max_examples=150)
@given(scenes())
def test_gangs_stay_whole_machines_hold_and_nobody_leaves_for_nothing(scene: SessionScene) -> None:
    """That includes that whoever made others leave fits once they have left: `later` counts the nominated."""
    assert not wrongs(scene.machines, scene.squads, scene.decide())


@settings(max_examples=80)
@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(scene: SessionScene, random: "object") -> None:
    shuffled_machines, shuffled = list(scene.machines), list(scene.squads)
    random.shuffle(shuffled_machines)  # type: ignore[attr-defined]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = SessionScene(shuffled_machines, shuffled, scene.ledger, scene.quotas, scene.policy)
    assert again.decide() == scene.decide()


@settings(max_examples=80)
@given(scenes())
def test_two_gangs_do_not_take_turns_for_ever(scene: SessionScene) -> None:
    squads: Sequence[Squad] = scene.squads
    for _ in range(ROUNDS):
        decision = scene.decide(squads)
        assert not wrongs(scene.machines, squads, decision)
        if not (decision.bound or decision.nominated or decision.moved or decision.evicted):
            return
        squads = next_round(squads, decision)
    raise AssertionError(f"still changing after {ROUNDS} rounds")


@settings(max_examples=80)
@given(scenes())
def test_every_pod_is_accounted_for_once(scene: SessionScene) -> None:
    decision = scene.decide()
    named = [
        *decision.bound,
        *decision.nominated,
        *decision.moved,
        *decision.pending,
        *(eviction.pod for eviction in decision.evicted),
    ]
    assert len(named) == len(set(named))
    waiting = {name for name, (pod, _) in pods_of(scene.squads).items() if not pod.node}
    assert waiting <= set(named)
