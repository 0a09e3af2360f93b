"""Whatever is declared, held and asked for: quota holds, what-ifs leave no trace, the input's order does not matter."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.quota.admission_cycle import CycleResult
from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.ledger import AdmittedWorkload
from fleet.quota.preemption import Victim, satisfies_policy
from fleet.quota.specs import CandidatePolicy, PreemptionStrategy
from fleet.quota.tree import QuotaNode, available, charge, dominant_resource_share, fits, release
from fleet.quota.workload import PreemptionMode
from fleet.reasons import Reason
from tests.support.quota_worlds import BOTH, QuotaPlan, over, plans
from tests.support.quotas import QuotaWorld, Turn

CYCLES = 12
"""Most of these worlds are at rest by then."""


def played(world: QuotaWorld) -> list[Turn]:
    return [world.turn() for _ in range(CYCLES)]


# -- what-ifs ---------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(plans(), st.data())
def test_charge_and_release_restore_the_exact_state_in_any_nesting(plan: QuotaPlan, data: st.DataObject) -> None:
    world = plan.build()
    start = world.state()
    queues = sorted(world.tree.queues)
    cells = range(len(world.tree.cells))
    amounts = st.dictionaries(st.sampled_from(cells), st.integers(0, 9), max_size=2)
    charged = data.draw(st.lists(st.tuples(st.sampled_from(queues), amounts), max_size=6))
    seen = []
    for name, usage in charged:
        seen.append(world.state())
        charge(world.tree.queues[name], usage)
    for name, usage in reversed(charged):
        release(world.tree.queues[name], usage)
        assert world.state() == seen.pop()
    assert world.state() == start


@settings(max_examples=100)
@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_charges_does_not_matter(plan: QuotaPlan, random: st.random_module) -> None:
    """So that lifting in one order and putting back in another is exact too."""
    world = plan.build()
    start, holders = world.state(), list(world.ledger.holders.values())
    random.shuffle(holders)
    for holder in holders:
        world.ledger.lift(holder)
    assert all(not any(usage) for usage in world.state().values())
    random.shuffle(holders)
    for holder in holders:
        world.ledger.put_back(holder)
    assert world.state() == start


@settings(max_examples=150)
@given(plans())
def test_what_is_available_can_be_charged_and_no_more(plan: QuotaPlan) -> None:
    world = plan.build()
    for node in world.tree.queues.values():
        for cell in range(len(world.tree.cells)):
            free = available(node, cell)
            assert free <= node.potential[cell]
            before = over(world)
            charge(node, {cell: free})
            assert over(world) == before
            charge(node, {cell: 1})
            assert over(world) - before
            release(node, {cell: 1})
            release(node, {cell: free})


@settings(max_examples=150)
@given(plans())
def test_nominating_changes_nothing(plan: QuotaPlan) -> None:
    world = plan.build()
    for head in world.scheduler.heads():
        start, holders = world.state(), dict(world.ledger.holders)
        search = world.scheduler.search(head.queue)
        first = search.best(head)
        assert world.state() == start
        assert world.ledger.holders == holders
        assert not any(holder.out for holder in holders.values())
        again = search.best(head)
        assert (again[0].given, [v.holder for v in again[1]]) == (first[0].given, [v.holder for v in first[1]])


@settings(max_examples=150)
@given(plans())
def test_a_nominated_preemption_fits_once_its_victims_are_gone(plan: QuotaPlan) -> None:
    world = plan.build()
    for head in world.scheduler.heads():
        node = world.node(head.queue)
        assignment, victims = world.scheduler.search(head.queue).best(head)
        assert not (victims and assignment.mode in {PreemptionMode.FIT, PreemptionMode.NO_FIT})
        if assignment.mode is PreemptionMode.FIT or victims:
            for victim in victims:
                world.ledger.lift(victim.holder)
            assert fits(node, assignment.usage)
            for victim in reversed(victims):
                world.ledger.put_back(victim.holder)


# -- cycles -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(plans())
def test_quota_is_never_exceeded(plan: QuotaPlan) -> None:
    """At no node, neither at the end of a cycle nor once its victims are gone and their preemptors came."""
    world = replace(plan, rules=replace(plan.rules, wait_for_leaving=True)).build()
    before = over(world)
    for _ in range(CYCLES):
        result = world.scheduler.cycle()
        assert over(world) <= before
        coming = [entry for entry in result.waiting if entry.outcome is EntryOutcome.PENDING_PREEMPTION]
        for victim, _ in result.evictions:
            world.ledger.lift(victim.holder)
        for entry in coming:
            charge(entry.node, entry.assignment.usage)
        assert over(world) <= before
        for entry in coming:
            release(entry.node, entry.assignment.usage)
        for victim, _ in reversed(result.evictions):
            world.ledger.put_back(victim.holder)
        carry_out(world, result)


def carry_out(world: QuotaWorld, result: CycleResult) -> None:
    for victim, _ in result.evictions:
        gone = world.scheduler.vacate(victim.holder.workload.uid)
        world.scheduler.submit(gone.workload)


@settings(max_examples=150)
@given(plans())
def test_usage_is_what_the_holders_hold(plan: QuotaPlan) -> None:
    world = plan.build()
    played(world)
    for node in world.tree.queues.values():
        held = [holder.usage for holder in world.ledger.holders.values() if holder.queue is node]
        assert node.usage == [sum(usage.get(cell, 0) for usage in held) for cell in range(len(world.tree.cells))]
    names = sorted(job.name for job in plan.jobs)
    waiting = [workload.name for line in world.scheduler.pending.values() for workload in line.in_order()]
    assert sorted([*waiting, *world.ledger.holders]) == names, "everybody holds or waits, nobody twice"


@settings(max_examples=200)
@given(plans())
def test_victims_are_only_taken_where_policy_allows(plan: QuotaPlan) -> None:
    world = plan.build()
    for _ in range(CYCLES):
        result = world.scheduler.cycle()
        entries = {entry.workload.uid: entry for entry in result.waiting}
        for victim, preemptor in result.evictions:
            judge(world, entries[preemptor.uid], victim.holder, victim.reason)
        uids = [victim.holder.workload.uid for victim, _ in result.evictions]
        assert len(uids) == len(set(uids)), "nobody is evicted for two"
        carry_out(world, result)


def judge(world: QuotaWorld, entry: CycleEntry, victim: AdmittedWorkload, reason: Reason) -> None:
    """One victim, by the rules as they are declared."""
    policy, fair = entry.queue.preemption, bool(world.scheduler.rules.fair)
    assert victim.uses_any(entry.assignment.contested(world.tree))
    assert victim.queue.root is entry.node.root
    if victim.queue is entry.node:
        assert reason is Reason.PREEMPTED
        assert satisfies_policy(policy.within_queue, entry.workload, victim.workload)
        return
    assert satisfies_policy(policy.reclaim, entry.workload, victim.workload)
    if reason is Reason.RECLAIMED_WHILE_BORROWING:
        assert not fair
        assert policy.while_borrowing is CandidatePolicy.LOWER
        assert victim.workload.priority < entry.workload.priority
        assert policy.while_borrowing_below is None or victim.workload.priority <= policy.while_borrowing_below
    else:
        assert reason in ({Reason.RECLAIMED, Reason.FAIR_SHARING} if fair else {Reason.RECLAIMED})


@settings(max_examples=150)
@given(plans())
def test_nothing_is_taken_from_a_subtree_within_its_quota(plan: QuotaPlan) -> None:
    """On the first cycle with victims, heads one at a time: nobody else is charged meanwhile."""
    world = plan.build()
    for head in world.scheduler.heads():
        assignment, victims = world.scheduler.search(head.queue).best(head)
        contested = assignment.contested(world.tree)
        mine = {id(node) for node in (world.node(head.queue), *world.node(head.queue).ancestors())}
        for victim in victims:
            node = victim.holder.queue
            while id(node) not in mine:
                assert not node.within(contested)
                assert node.parent is not None
                node = node.parent


@settings(max_examples=150)
@given(plans(strategies=(BOTH, BOTH[:1], BOTH[1:]), amounts=(1, 1, 2, 3)))
def test_fair_victims_can_be_justified_one_after_the_other(plan: QuotaPlan) -> None:
    """In some order each may go when its turn comes, all the earlier ones gone and nobody else."""
    world = plan.build()
    for head in world.scheduler.heads():
        assignment, victims = world.scheduler.search(head.queue).best(head)
        node = world.node(head.queue)
        charge(node, assignment.usage)
        assert justified(world, node, victims)
        release(node, assignment.usage)


def justified(world: QuotaWorld, node: QuotaNode, victims: list[Victim]) -> bool:
    """`node` has the request charged; tries all orders."""
    for victim in victims:
        holder = victim.holder
        mine, theirs = almost_shared(node, holder.queue)
        asked, before = dominant_resource_share(world.tree, mine).key, dominant_resource_share(world.tree, theirs).key
        world.ledger.lift(holder)
        after = dominant_resource_share(world.tree, theirs).key
        holds = {PreemptionStrategy.FINAL: asked <= after, PreemptionStrategy.INITIAL: asked < before}
        may = victim.reason is not Reason.FAIR_SHARING or any(holds[rule] for rule in world.scheduler.rules.fair)
        found = may and justified(world, node, [other for other in victims if other is not victim])
        world.ledger.put_back(holder)
        if found:
            return True
    return not victims


def almost_shared(a: QuotaNode, b: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The ancestors of both just below the lowest that they share."""
    pairs = [(x, y) for x in (a, *a.ancestors()) for y in (b, *b.ancestors())]
    return next(((x, y) for x, y in pairs if x.parent is y.parent), (a, b))


# -- order and neighbours ---------------------------------------------------------------------------------------------


def told(turns: list[Turn]) -> list[Turn]:
    return [
        Turn(dict(sorted(t.admitted.items())), dict(sorted(t.evicted.items())), dict(sorted(t.waiting.items())))
        for t in turns
    ]


@settings(max_examples=100)
@given(plans(), st.data())
def test_the_order_of_the_input_does_not_matter(plan: QuotaPlan, data: st.DataObject) -> None:
    other = plan.permuted(
        *(data.draw(st.permutations(range(len(part)))) for part in (plan.cohorts, plan.queues, plan.jobs))
    )
    assert told(played(other.build())) == told(played(plan.build()))


@settings(max_examples=100)
@given(plans(), plans())
def test_an_unrelated_tree_changes_nothing(plan: QuotaPlan, stranger: QuotaPlan) -> None:
    """Cycle by cycle the same decisions: trees do not see each other."""
    alone, both = plan.build(), plan.beside(stranger.renamed("-x")).build()
    mine = {job.name for job in plan.jobs}
    for _ in range(CYCLES):
        one, two = alone.turn(), both.turn()
        for a, b in ((one.admitted, two.admitted), (one.evicted, two.evicted), (one.waiting, two.waiting)):
            assert a == {name: value for name, value in b.items() if name in mine}


# -- strict and best effort -------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(plans())
def test_in_a_strict_queue_nobody_passes(plan: QuotaPlan) -> None:
    world = plan.build()
    for _ in range(CYCLES):
        first = {
            name: line.in_order()[0].name for name, line in world.scheduler.pending.items() if line.strict and len(line)
        }
        turn = world.turn()
        touched = {name: world.holders().get(name) for name in turn.admitted}
        for name, above in touched.items():
            assert above not in first or first[above] == name


@settings(max_examples=150)
@given(plans())
def test_at_rest_nobody_is_forgotten(plan: QuotaPlan) -> None:
    """Where nobody blocks a queue, nothing that waits would fit into what is free."""
    plan = replace(plan, queues=tuple(replace(q, strict=False) for q in plan.queues))
    world = plan.build()
    played(world)
    if any(line.active() for line in world.scheduler.pending.values()):
        return
    for name, line in world.scheduler.pending.items():
        for workload in line.in_order():
            assignment, _ = world.scheduler.search(name).best(workload)
            assert assignment.mode is not PreemptionMode.FIT
