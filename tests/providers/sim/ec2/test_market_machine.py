"""Whatever is asked of the market and in whatever order: capacity is conserved, and nobody gets what is not there."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fleet.snapshot import CapacityPool
from providers.sim.ec2 import PoolFilter, Quota, RegionMarket
from tests.providers.sim.ec2.rigs import VCPUS, pool

POOLS = [pool(), pool("spot"), pool(zone="us-east-1b"), pool("on-demand", "p5.48xlarge")]
FILTERS = [PoolFilter(), PoolFilter.only(POOLS[0]), PoolFilter(capacity_type="spot"), PoolFilter(zone="us-east-1a")]
QUOTAS = [Quota(spot=False, group="G and VT"), Quota(spot=False, group="P"), Quota(spot=True, group="G and VT")]

pools = st.sampled_from(POOLS)
filters = st.sampled_from(FILTERS)


class Markets(RuleBasedStateMachine):
    """The market against a ledger kept by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.market = RegionMarket(vcpus=VCPUS)
        self.out: dict[CapacityPool, int] = dict.fromkeys(POOLS, 0)
        self.short: set[PoolFilter] = set()
        self.lying: set[PoolFilter] = set()

    @rule(one=pools, machines=st.none() | st.integers(0, 12))
    def capacity(self, one: CapacityPool, machines: int | None) -> None:
        self.market.set_capacity(one, machines)

    @rule(chosen=filters, on=st.booleans())
    def shortage(self, chosen: PoolFilter, on: bool) -> None:
        self.market.set_shortage(chosen, on=on)
        (self.short.add if on else self.short.discard)(chosen)

    @rule(chosen=filters, on=st.booleans())
    def lie(self, chosen: PoolFilter, on: bool) -> None:
        self.market.set_lying(chosen, on=on)
        (self.lying.add if on else self.lying.discard)(chosen)

    @rule(quota=st.sampled_from(QUOTAS), vcpus=st.none() | st.integers(0, 800))
    def quota(self, quota: Quota, vcpus: int | None) -> None:
        self.market.set_quota(quota, vcpus)

    @rule(left=st.none() | st.integers(0, 10))
    def shortage_after(self, left: int | None) -> None:
        self.market.faults.shortage_after = left

    @rule(one=pools, count=st.integers(1, 10), share=st.floats(0, 1))
    def take(self, one: CapacityPool, count: int, share: float) -> None:
        minimum = round(count * share)
        total, left = self.market.capacity(one), self.market.faults.shortage_after
        quota = self.market.quotas.get(Quota.of(one))
        room = [
            0 if any(one in chosen for chosen in self.short) else count,
            count if total is None else max(0, total - self.out[one]),
            count if left is None else left,
            count if quota is None else max(0, quota - self.vcpus(Quota.of(one))) // VCPUS[one.instance_type],
        ]
        grant = self.market.take(one, count, minimum)
        possible = min([count, *room])
        lies = any(one in chosen for chosen in self.lying)
        assert grant.count == (possible if possible >= minimum or lies else 0)
        assert bool(grant.code) == (possible < count)
        assert left is None or self.market.faults.shortage_after == left - grant.count
        self.out[one] += grant.count

    @precondition(lambda self: any(self.out.values()))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from([one for one in POOLS if self.out[one]]))
        count = data.draw(st.integers(1, self.out[one]))
        self.market.give_back(one, count)
        self.out[one] -= count

    def vcpus(self, quota: Quota) -> int:
        return sum(count * VCPUS[one.instance_type] for one, count in self.out.items() if Quota.of(one) == quota)

    @invariant()
    def the_books_agree(self) -> None:
        assert {one: self.market.in_use(one) for one in POOLS} == self.out
        for quota in QUOTAS:
            assert self.market.vcpus_in_use(quota) == self.vcpus(quota)

    @invariant()
    def free_is_never_negative(self) -> None:
        for one in POOLS:
            free = self.market.free(one)
            assert free is None or free >= 0


TestMarkets = Markets.TestCase
TestMarkets.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
