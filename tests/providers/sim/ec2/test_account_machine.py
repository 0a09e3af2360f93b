"""Whatever happens to machines in whatever order, the ledger, the market and the list of machines tell one story."""

import dataclasses
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fleet.snapshot import CapacityPool, LaunchRequest
from providers.clock import VirtualClock
from providers.sim.ec2 import MemoryCloud, PoolFilter, RegionMarket, SpotProcess
from tests.providers.sim.ec2.rigs import NOW_S, launch_request, pool, small_catalog

POOLS = [pool(), pool("spot"), pool("spot", "p5.48xlarge", "us-east-1b")]


class Lives(RuleBasedStateMachine):
    """A cloud under a virtual clock with spot interruptions, shortages, lies and lost answers."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock(NOW_S)
        self.market = RegionMarket.from_catalog(
            small_catalog(), default_capacity=8, spot=SpotProcess(interruptions_per_h=0.5)
        )
        self.cloud = MemoryCloud(self.market, small_catalog(), self.clock)
        self.tokens = (f"t{number}" for number in itertools.count())
        self.asked: dict[str, LaunchRequest] = {}

    @rule(one=st.sampled_from(POOLS), count=st.integers(1, 9), lost=st.booleans())
    def launch(self, one: CapacityPool, count: int, lost: bool) -> None:
        request = launch_request(next(self.tokens), count, one)
        self.market.faults.lost_answers = int(lost)
        before = len(self.cloud.ledger())
        outcome = self.cloud.launch(request)
        self.market.faults.lost_answers = 0
        bought = len(self.cloud.ledger()) - before
        assert bought in (0, count) or self.market.lies(one)
        assert len(outcome.instances) == (0 if lost else bought)
        self.asked[request.token] = request

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.asked)))
        before = self.cloud.ledger()
        outcome = self.cloud.launch(self.asked[token])
        assert len(self.cloud.ledger()) == len(before)
        assert set(outcome.instances) == {entry.instance_id for entry in before if entry.token == token}

    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        ids = sorted(entry.instance_id for entry in self.cloud.ledger())
        chosen = data.draw(st.lists(st.sampled_from([*ids, "i-00000000000000000"]), max_size=6))
        self.cloud.terminate(chosen)
        ended = {entry.instance_id for entry in self.cloud.ledger() if entry.ended_at_s is not None}
        assert set(chosen) - {"i-00000000000000000"} <= ended

    @precondition(lambda self: self.cloud.list())
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        machines = sorted(machine.instance_id for machine in self.cloud.list())
        self.cloud.kill(data.draw(st.sampled_from(machines)))

    @rule(capacity=st.integers(0, 8))
    def shrink(self, capacity: int) -> None:
        self.market.set_capacity(POOLS[1], capacity)
        self.cloud.account.reclaim(POOLS[1])

    @rule(on=st.booleans())
    def lie(self, on: bool) -> None:
        self.market.set_lying(PoolFilter.only(POOLS[1]), on=on)

    @rule(seconds=st.sampled_from([1.0, 15.0, 119.0, 600.0, 7200.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        following = self.cloud.step(self.clock.now())
        assert following is None or following > self.clock.now()

    @invariant()
    def market_and_machines_agree(self) -> None:
        machines = [machine for machine in self.cloud.list() if machine.state != "terminated"]
        for one in POOLS:
            held = [m for m in machines if CapacityPool(one.capacity_type, m.instance_type, m.zone) == one]
            held = [m for m in held if m.capacity_type == one.capacity_type]
            assert self.market.in_use(one) == len(held)

    @invariant()
    def every_machine_bills_exactly_while_it_lives(self) -> None:
        entries = {entry.instance_id: entry for entry in self.cloud.ledger()}
        assert len(entries) == len(self.cloud.ledger())
        for machine in self.cloud.list():
            ended = entries[machine.instance_id].ended_at_s
            assert (ended is None) == (machine.state in ("pending", "running"))
        listed = {machine.instance_id for machine in self.cloud.list()}
        for entry in entries.values():
            assert entry.cost_usd >= 0
            assert entry.ended_at_s is None or entry.launched_at_s <= entry.ended_at_s <= self.clock.now()
            assert entry.instance_id in listed or entry.ended_at_s is not None
            assert bool(entry.reason) or entry.ended_at_s is None

    @invariant()
    def no_two_live_machines_share_an_address(self) -> None:
        names = [machine.private_dns for machine in self.cloud.list() if machine.state != "terminated"]
        assert len(names) == len(set(names))


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1, 20_000), min_size=1, max_size=30), st.integers(0, 5))
def test_one_long_wait_is_as_good_as_many_short_ones(pauses: list[float], seed: int) -> None:
    """Time is crossed event by event, so it does not matter how often somebody looks."""

    def live(steps: list[float]) -> list[tuple[object, ...]]:
        clock = VirtualClock(NOW_S)
        market = RegionMarket.from_catalog(small_catalog(), spot=SpotProcess(seed=seed, interruptions_per_h=2.0))
        cloud = MemoryCloud(market, small_catalog(), clock)
        cloud.launch(launch_request("a", 5, pool("spot")))
        for instant in steps:
            clock.advance_to(instant)
            cloud.step(clock.now())
        notices = []
        while received := cloud.receive(0):
            notices += [(notice.kind, notice.instance_ids, notice.at_s) for notice in received]
            cloud.acknowledge(received)
        return [dataclasses.astuple(entry) for entry in cloud.ledger()] + notices

    instants = list(itertools.accumulate(pauses, initial=NOW_S))[1:]
    assert live(instants) == live(instants[-1:])
