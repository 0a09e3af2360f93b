"""All deciders together, turn after turn, while jobs come and go, machines fail and the cloud runs short.

Whatever happens: nothing is promised twice, nothing leaks, limits hold, and when the noise stops so does the engine.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.deciders import DECIDERS
from fleet.nodeclaims.interruption import respond
from fleet.snapshot import ANY_NUMBER, ClaimState, GangState, JobResult, Notice, NoticeKind, PodSet
from model import labels
from model.fleet import Fleet
from model.kinds import CapacityType
from tests.support.checker import over_limits
from tests.support.fleets import GPU, P5, P5S, A, B, FleetBuilder, amounts, capacity_pool, foreign_pod, gang
from tests.support.world import World

SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"


def fleet(*, changed: bool = False, fixed: int = 1) -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    budgets = {"budgets": [{"nodes": "50%"}]}
    template: dict[str, Any] = {"labels": {"generation": "two"}} if changed else {}
    builder.pool(
        "h100",
        instanceTypes=[P5.name, P5S.name],
        capacityTypes=["spot", "on-demand"],
        limits={"nodes": 4, "usdPerHour": 350.0},
        disruption=budgets,
        template=template,
    )
    layouts = ["large", "small"] if changed else ["small", "large"]
    builder.pool("mig", limits={"nodes": 1}, sharing={"mig": {"layouts": layouts}}, disruption=budgets)
    builder.pool("fixed", replicas=fixed, instanceTypes=[P5S.name])
    builder.team("org", quotas={}, namespaces=[])
    for team in ("a", "b"):
        quotas = {"h100": {GPU: 16}, "mig": {"cpu": "99"}, "fixed": {GPU: 2}}
        builder.team(team, quotas, parent="org", namespaces=[team])
        builder.queue(f"q{team}", team, ["fixed", "h100", "mig"], preemption={"withinQueue": "LowerPriority"})
    return builder.build()


# -- what happens -----------------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn) -> Callable[[World], object]:
    resource, amount = draw(
        st.sampled_from(((GPU, 1), (GPU, 4), (GPU, 8), (SMALL, 1), (SMALL, 7), (LARGE, 1), (LARGE, 2)))
    )
    count, team, priority = draw(st.integers(1, 3)), draw(st.sampled_from("ab")), draw(st.integers(0, 2))
    level = draw(st.sampled_from(("", "", labels.ZONE, labels.HOSTNAME)))
    restarts = draw(st.sampled_from(({}, {"main": 2}, {"main": ANY_NUMBER}, {"main": ANY_NUMBER})))

    def arrive(world: World) -> None:
        name = f"j{len(world.jobs)}x{int(world.now_s) % 100000}"
        pods = PodSet("main", count, {**amounts(), resource: amount}, required_topology=level)
        it = gang(name, pods, queue=f"q{team}", namespace=team, priority=priority, created_s=world.now_s)
        world.waits(it)
        world.gangs.pop(it.uid)
        world.jobs[it.uid] = replace(world.jobs[it.uid], restarts=restarts)

    return arrive


def finish(world: World) -> None:
    """The oldest job that runs is done; its pods have ended."""
    for uid, it in sorted(world.gangs.items(), key=lambda entry: (entry[1].created_at_s, entry[0])):
        if it.pods_ready and not world.jobs[uid].result:
            world.jobs[uid] = replace(world.jobs[uid], result=JobResult.SUCCEEDED, finished_at_s=world.now_s)
            mine = (it.namespace, it.workload)
            world.pods = {
                key: replace(pod, phase="Succeeded") if (pod.namespace, pod.workload) == mine else pod
                for key, pod in world.pods.items()
            }
            return


def delete_job(world: World) -> None:
    """The youngest job is deleted, with its pods."""
    if world.jobs:
        uid = max(world.jobs, key=lambda it: (world.jobs[it].created_at_s, it))
        job = world.jobs.pop(uid)
        world.pods = {
            k: pod for k, pod in world.pods.items() if not (pod.workload and pod.name.startswith(job.ref.name))
        }


def interrupt(world: World) -> None:
    """EC2 takes back the first spot machine."""
    ids = [it.id for _, it in sorted(world.instances.items()) if not it.gone and it.capacity_type == "spot"][:1]
    notice = Notice("n", NoticeKind.SPOT_INTERRUPTED, tuple(ids), world.now_s, world.now_s + 120)
    response = respond([notice], world.snapshot())
    world.shortages.update(response.shortages)
    world.apply(response.actions)


def vanish(world: World) -> None:
    """An instance ends by itself; its node stays behind, not ready, and its pods are gone with it."""
    for _, it in sorted(world.instances.items()):
        if not it.gone:
            world.instances[it.id] = replace(it, state="terminated")
            gone = {node.name for node in world.nodes.values() if node.instance_id == it.id}
            world.pods = {key: pod for key, pod in world.pods.items() if pod.node not in gone}
            for name in gone:
                world.nodes[name] = replace(world.nodes[name], ready=False, ready_changed_at_s=world.now_s)
            return


def fall_silent(world: World) -> None:
    """The first node that was well is not any more, for a while or for good; its pods stay as they are."""
    joined = {claim.node for claim in world.claims.values() if claim.state is ClaimState.READY}
    for name, node in sorted(world.nodes.items()):
        if node.ready and name in joined:
            since_s = world.now_s - 61
            world.nodes[name] = replace(node, ready=False, ready_changed_at_s=since_s)
            world.pods = {
                key: replace(pod, ready=False) if pod.node == name else pod for key, pod in world.pods.items()
            }
            return


def come_back(world: World) -> None:
    """Nodes whose machines run are well again."""
    for name, node in world.nodes.items():
        instance = world.instances.get(node.instance_id)
        if not node.ready and instance is not None and not instance.gone:
            world.nodes[name] = replace(node, ready=True, ready_changed_at_s=world.now_s)
            world.pods = {
                key: replace(pod, ready=True) if pod.node == name and pod.active else pod
                for key, pod in world.pods.items()
            }


def sell_out(world: World) -> None:
    """No more spot machines, and none in the first zone."""
    out: tuple[tuple[str, CapacityType], ...] = ((A, "spot"), (B, "spot"), (A, "on-demand"))
    world.sold_out = {capacity_pool(kind, zone, ct) for kind in (P5.name, P5S.name) for zone, ct in out}


def restock(world: World) -> None:
    """Everything can be had again."""
    world.sold_out = set()


def change_fleet(world: World) -> None:
    """A revision: another template, another first layout, one fixed machine more."""
    world.fleet = fleet(changed=True, fixed=2)


def wait_long(world: World) -> None:
    """Nothing for twenty minutes."""
    world.now_s += 1200


def stray_pod(world: World) -> None:
    """Somebody starts a pod of their own on the first node, or stops it."""
    if world.pods.pop("other/stray", None) is None and world.nodes:
        world.stands(foreign_pod("stray", min(world.nodes), {"cpu": 1000}))


def lose_an_answer(world: World) -> None:
    """The next launch buys its machines, and the answer gets lost."""
    world.answers_lost += 1


def lose_every_answer(world: World) -> None:
    """The next launches are carried out and nobody hears of it for minutes."""
    world.answers_lost += 60


def delete_claim(world: World) -> None:
    """Somebody deletes a NodeClaim by hand."""
    for name, claim in sorted(world.claims.items()):
        if not claim.deleting:
            world.claims[name] = replace(claim, deleting=True)
            return


def delete_node(world: World) -> None:
    """Somebody deletes a Node object by hand; its pods go with it."""
    if world.nodes:
        name = min(world.nodes)
        del world.nodes[name]
        world.pods = {key: pod for key, pod in world.pods.items() if pod.node != name}


def change_job(world: World) -> None:
    """A job that has not started asks for one pod more."""
    for uid, job in sorted(world.jobs.items()):
        if job.suspended and not job.result:
            [pods] = job.pod_sets
            world.jobs[uid] = replace(job, pod_sets=(replace(pods, count=pods.count + 1),))
            return


def unsuspend(world: World) -> None:
    """Somebody starts a job that waits, past the queue."""
    for uid, job in sorted(world.jobs.items()):
        admitted = uid in world.gangs and world.gangs[uid].state is GangState.ADMITTED
        if job.suspended and not job.result and not admitted:
            world.jobs[uid] = replace(job, suspended=False)
            return


def suspend(world: World) -> None:
    """Somebody suspends a running job by hand."""
    for uid, it in sorted(world.gangs.items()):
        if it.pods_ready and uid in world.jobs and not world.jobs[uid].result:
            world.jobs[uid] = replace(world.jobs[uid], suspended=True, ready_pods=0)
            mine = (it.namespace, it.workload)
            world.pods = {key: pod for key, pod in world.pods.items() if (pod.namespace, pod.workload) != mine}
            return


@st.composite
def crashes(draw: st.DrawFn) -> Callable[[World], object]:
    """The agent dies in the middle of a turn: some of its first actions are done, the others never were."""
    done = draw(st.lists(st.booleans(), min_size=1, max_size=4))

    def crash(world: World) -> None:
        left = list(done)
        for decide in DECIDERS.values():
            actions = list(decide(world.fleet, world.snapshot()))
            world.apply([action for action, kept in zip(actions, left, strict=False) if kept])
            left = left[len(actions) :]
            if not left:
                return

    return crash


MEDDLING = (lose_an_answer, lose_every_answer, delete_claim, delete_node, change_job, unsuspend, suspend)
USUAL = (
    finish,
    finish,
    delete_job,
    interrupt,
    vanish,
    fall_silent,
    fall_silent,
    come_back,
    sell_out,
    restock,
    change_fleet,
    wait_long,
    stray_pod,
)
EVENTS = st.one_of(arrivals(), arrivals(), arrivals(), crashes(), st.sampled_from(USUAL), st.sampled_from(MEDDLING))


# -- what must hold ---------------------------------------------------------------------------------------------------


def check(world: World) -> None:
    _gangs_are_whole(world)
    _rooms(world)
    for name, pool in world.fleet.node_pools.items():
        mine = [claim for claim in world.claims.values() if claim.node_pool == name and pool.spec.replicas is None]
        types = world.catalog.types
        assert not over_limits(pool, [(it.price_usd_h, types[it.capacity_pool.instance_type].capacity) for it in mine])
    for launch in world.launches:
        assert launch.count >= 1


def _gangs_are_whole(world: World) -> None:
    for it in world.gangs.values():
        pinned = Counter[str]()
        for pin in it.pins:
            pinned[pin.pod_set] += pin.count
        if it.holds_capacity:
            assert pinned == Counter({pod_set.name: pod_set.count for pod_set in it.pod_sets}), it.name
        else:
            assert not pinned, it.name


def _rooms(world: World) -> None:
    """On every machine that is there, the pods pinned to it fit together."""
    taken: dict[str, Counter[str]] = {}
    for it in world.gangs.values():
        for pin in it.pins:
            on = taken.setdefault(pin.claim, Counter())
            for resource, amount in it.pod_set(pin.pod_set).requests.items():
                on[resource] += amount * pin.count
    for name, amounts_taken in taken.items():
        claim = world.claims.get(name)
        if claim is not None:
            over = {r: n for r, n in amounts_taken.items() if n > claim.resources.get(r, 0)}
            assert not over, f"{name}: {over}"


def nothing_leaks(world: World) -> None:
    """Every machine that bills belongs to a claim, and every claim to a machine."""
    alive = {it.id for it in world.instances.values() if not it.gone}
    assert alive == {claim.instance_id for claim in world.claims.values()}
    assert {node.name for node in world.nodes.values()} == {claim.node for claim in world.claims.values()}
    assert not [taint.key for node in world.nodes.values() for taint in node.taints]
    for it in world.gangs.values():
        assert it.message
        assert it.state in {GangState.PENDING, GangState.ADMITTED, GangState.FINISHED}
        if it.state is GangState.ADMITTED:
            assert it.pods_ready
    uids = {it.uid for it in world.gangs.values()}
    assert uids == set(world.jobs)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 4)), min_size=4, max_size=25))
def test_whatever_happens(story: list[tuple[Callable[[World], object], int]]) -> None:
    world = World(fleet())
    for event, passes in story:
        event(world)
        for _ in range(passes):
            world.pass_once()
            check(world)
            world.now_s += 7
    world.pods.pop("other/stray", None)
    world.sold_out, world.answers_lost = set(), 0
    _come_to_rest(world)
    check(world)
    nothing_leaks(world)


def _come_to_rest(world: World) -> None:
    """Hours later nothing is asked for any more: shortages are over, quiet times past, everything moved that pays."""
    quiet = 0
    for _ in range(400):
        quiet = 0 if world.pass_once() else quiet + 1
        world.now_s += 30 if quiet else 5
        if quiet == 12:  # longer than a silent node is waited for
            return
    actions = world.pass_once()
    raise AssertionError(f"never quiet; now {[(type(it).__name__, it.subjects) for it in actions]}")
