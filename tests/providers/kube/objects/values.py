"""Sample values and hypothesis strategies for what is written to the cluster and read back."""

from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.plan.guards import MOST_TALLIES, RevisionTally
from fleet.snapshot import (
    CapacityPool,
    Claim,
    CutFailure,
    CutOrder,
    DecisionFailure,
    Eviction,
    FormerCut,
    Gang,
    GangState,
    IdleGpus,
    JobRef,
    Launch,
    LayoutRecord,
    MachineEvent,
    NodeDisruption,
    Pin,
    PodSet,
    RolloutProgress,
    Slice,
)
from fleet.snapshot.constraints import (
    UNCONSTRAINED,
    EphemeralClaim,
    PodAffinityTerm,
    PodConstraints,
    PodHostPort,
    PreferredNodes,
    PreferredPods,
    TopologySpreadConstraint,
    UnsupportedConstraint,
)
from fleet.snapshot.devices import DeviceAsk, DeviceClaim, MatchAttribute, RequestedDevices
from model.kinds import RequirementTerm, Taint, Toleration
from model.plain_text import plain
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.objects import Finding, PlanSummary, SyncAttempt, SyncProblem, SyncReport

NOW_S = 1_800_000_000.0

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no reason to fail."""

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
reasons = st.from_regex(r"[A-Z][A-Za-z]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
words = texts.map(plain)
"""What objects hold of text that people read: plain, as every message is once it is written."""
# To the microsecond, which is what the wire holds.
instants = st.integers(min_value=1, max_value=4_000_000_000_000_000).map(lambda us: us / 1e6)
maybe_instants = st.just(0.0) | instants
amounts = st.dictionaries(
    st.sampled_from(
        ("cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "vpc.amazonaws.com/efa", "hugepages-2Mi")
    ),
    st.integers(min_value=0, max_value=1 << 50),
)
# As the API server takes them: a value only with Equal, seconds only with NoExecute.
tolerations = st.one_of(
    st.builds(
        Toleration,
        key=names,
        operator=st.just("Exists"),
        effect=st.sampled_from(("", "NoSchedule", "PreferNoSchedule", "NoExecute")),
    ),
    st.builds(
        Toleration,
        key=names,
        operator=st.just("Equal"),
        value=names | st.just(""),
        effect=st.just("NoExecute"),
        toleration_seconds=st.none() | st.integers(min_value=0, max_value=10_000),
    ),
)
terms = st.builds(
    RequirementTerm,
    key=names,
    operator=st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
    values=st.lists(names, max_size=3).map(tuple),
)
label_requirements = st.builds(
    LabelSelectorRequirement,
    key=names,
    operator=st.sampled_from(("In", "NotIn")),
    values=st.sampled_from((("x",), ("y", ""))),
) | st.builds(LabelSelectorRequirement, key=names, operator=st.sampled_from(("Exists", "DoesNotExist")))
selectors = st.none() | st.lists(label_requirements, max_size=2).map(lambda found: tuple(dict.fromkeys(found)))
pod_terms = st.builds(
    PodAffinityTerm,
    topology_key=names,
    selector=selectors,
    namespaces=(st.tuples(names) | st.tuples(names, names)).map(frozenset),
    namespace_selector=selectors,
) | st.builds(
    PodAffinityTerm,
    topology_key=names,
    selector=selectors,
    namespace_selector=st.just(()) | st.tuples(label_requirements),
)
"""A term without namespaces and without a selector of them means the pod's own, which is spelled out."""
spreads = st.builds(
    TopologySpreadConstraint,
    topology_key=names,
    max_skew=st.integers(1, 9),
    selector=selectors,
    hard=st.booleans(),
    min_domains=st.integers(1, 9),
    honors_affinity=st.booleans(),
    honors_taints=st.booleans(),
)
legal_terms = st.builds(
    RequirementTerm, key=names, operator=st.sampled_from(("In", "NotIn")), values=st.just(("a",)) | st.just(("b", "c"))
) | st.builds(RequirementTerm, key=names, operator=st.sampled_from(("Gt", "Lt")), values=st.just(("7",)))
host_ports = st.builds(
    PodHostPort,
    port=st.integers(1, 65535),
    protocol=st.sampled_from(("TCP", "UDP")),
    ip=st.sampled_from(("", "10.0.0.1")),
)
ephemeral_claims = st.builds(EphemeralClaim, volume=names, storage_class=names | st.just(""), claim=names | st.just(""))
device_asks = st.builds(
    DeviceAsk,
    name=names,
    device_class=names,
    selectors=st.lists(st.sampled_from(("true", "device.driver == 'a'")), max_size=2).map(tuple),
    count=st.integers(1, 8),
    resource=st.sampled_from(("", "nvidia.com/gpu")),
    tolerations=st.sampled_from(((), (Toleration(key="k", value="v", effect="NoExecute", toleration_seconds=9),))),
    every=st.booleans(),
    capacity=st.sampled_from(((), (("memory", Fraction(20 * 2**30)), ("shares", Fraction(1, 2))))),
)
device_claims = st.builds(
    DeviceClaim,
    name=names,
    requests=st.lists(
        st.builds(RequestedDevices, name=names, asks=st.lists(device_asks, min_size=1, max_size=2).map(tuple)),
        max_size=2,
    ).map(tuple),
    constraints=st.lists(
        st.builds(
            MatchAttribute, attribute=names, requests=st.lists(names, max_size=2).map(tuple), distinct=st.booleans()
        ),
        max_size=1,
    ).map(tuple),
    shared=names | st.just(""),
)
constraints = st.builds(
    PodConstraints,
    devices=st.lists(device_claims, max_size=2).map(tuple),
    affinity=st.lists(pod_terms, max_size=2).map(tuple),
    anti_affinity=st.lists(pod_terms, max_size=2).map(tuple),
    spread=st.lists(spreads, max_size=2).map(tuple),
    host_ports=st.lists(host_ports, max_size=2).map(tuple),
    claims=st.lists(names, max_size=2).map(tuple),
    ephemeral=st.lists(ephemeral_claims, max_size=2).map(tuple),
    preferred_nodes=st.lists(
        st.builds(
            PreferredNodes,
            weight=st.integers(1, 100),
            terms=st.tuples(legal_terms) | st.tuples(legal_terms, legal_terms),
        ),
        max_size=2,
    ).map(tuple),
    preferred_pods=st.tuples(
        st.lists(st.builds(PreferredPods, weight=st.integers(1, 100), term=pod_terms), max_size=2),
        st.lists(st.builds(PreferredPods, weight=st.integers(-100, -1), term=pod_terms), max_size=2),
    ).map(lambda sides: (*sides[0], *sides[1])),
)
pod_sets = st.builds(
    PodSet,
    labels=st.dictionaries(names, names, max_size=2).map(lambda found: tuple(sorted(found.items()))),
    constraints=constraints | st.just(UNCONSTRAINED),
    runtime_class=names | st.just(""),
    unsupported=st.lists(st.builds(UnsupportedConstraint, path=names, words=texts), max_size=2).map(tuple),
    forbidden=st.lists(texts, max_size=2).map(tuple),
    name=names,
    count=st.integers(min_value=0, max_value=5000),
    requests=amounts,
    node_selector=st.dictionaries(names, names, max_size=3),
    required_affinity=st.lists(st.lists(terms, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    tolerations=st.lists(tolerations, max_size=2).map(tuple),
    required_topology=names | st.just(""),
    preferred_topology=names | st.just(""),
    any_topology=st.booleans(),
    slices=st.lists(st.builds(Slice, level=names, size=st.integers(1, 512)), max_size=3).map(tuple),
    group=names | st.just(""),
    min_count=st.none() | st.integers(0, 5000),
    core=st.none() | st.integers(0, 5000),
    part_of=names | st.just(""),
)
pins = st.builds(Pin, pod_set=names, node=names | st.just(""), claim=names | st.just(""), count=st.integers(1, 64))


failures = st.none() | st.builds(DecisionFailure, error=st.sampled_from(("KeyError", "ValueError")), cause=words)


unlike_pod_sets = st.lists(pod_sets, max_size=3, unique_by=lambda it: it.name)


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    """Any gang, its live fields at their defaults."""
    namespace, uid = draw(names), draw(names)
    kind, version = draw(st.sampled_from((("Job", "batch/v1"), ("JobSet", "jobset.x-k8s.io/v1alpha2"))))
    return Gang(
        uid=uid,
        namespace=namespace,
        workload=draw(names),
        job=JobRef(version, kind, namespace, draw(names), uid),
        queue=draw(names),
        priority_class=draw(names | st.just("")),
        priority=draw(st.integers(-2_000_000_000, 2_000_000_000)),
        pod_sets=tuple(replace(it, namespace=namespace) for it in draw(unlike_pod_sets)),
        created_at_s=draw(instants),
        state=draw(st.sampled_from(GangState)),
        reason=draw(reasons),
        message=draw(words),
        since_s=draw(instants),
        flavors=draw(st.dictionaries(names, st.lists(names, min_size=1, max_size=2).map(tuple), max_size=3)),
        pins=tuple(draw(st.lists(pins, max_size=4))),
        leaving=tuple(draw(st.lists(pins, max_size=2))),
        recuts=draw(st.dictionaries(names, names, max_size=2)),
        quota_reserved_at_s=draw(maybe_instants),
        admitted_at_s=draw(maybe_instants),
        pods_ready=draw(st.booleans()),
        not_ready_since_s=draw(maybe_instants),
        replacing_since_s=draw(maybe_instants),
        eviction=draw(st.none() | st.builds(Eviction, reason=reasons, message=words, at_s=instants, room_for=words)),
        evictions=draw(st.integers(0, 1000)),
        idle=draw(st.none() | idle_gpus),
        requeue_at_s=draw(maybe_instants),
        preempts=draw(st.booleans()),
        active=draw(st.booleans()),
        timeouts=draw(st.integers(0, 1000)),
        ran_before_s=draw(st.just(0.0) | st.floats(0, 1e9)),
        failure=draw(failures),
    )


idle_gpus = st.builds(
    IdleGpus, since_s=instants, idle=st.integers(1, 9), of=st.integers(1, 9), after_s=st.floats(60, 1e6)
)
disruptions = st.builds(
    NodeDisruption, reason=reasons, message=words, at_s=instants, deadline_s=st.just(inf) | instants
)
capacity_pools = st.builds(
    CapacityPool,
    capacity_type=st.sampled_from(("reserved", "spot", "on-demand")),
    instance_type=names,
    zone=names,
    reservation=names | st.just(""),
)
startup_taints = st.none() | st.lists(
    st.builds(
        Taint,
        key=names,
        value=names | st.just(""),
        effect=st.sampled_from(("NoSchedule", "PreferNoSchedule", "NoExecute")),
    ),
    max_size=2,
).map(tuple)
gpu_cuts = st.lists(st.dictionaries(st.sampled_from(("1g.10gb", "3g.40gb")), st.integers(1, 7)), max_size=3).map(tuple)
cut_orders = st.builds(
    CutOrder,
    reason=st.sampled_from(("", "LayoutDrift", "LayoutRollout")),
    message=words,
    since_s=instants,
    began_s=maybe_instants,
    asked_at_s=maybe_instants,
    tries=st.integers(0, 9),
    former=names | st.just(""),
    before=st.none() | st.builds(FormerCut, layout=names, gpus=amounts, cuts=gpu_cuts),
)
claims = st.builds(
    Claim,
    name=names,
    uid=names,
    node_pool=names,
    pool_hash=names,
    capacity_pool=capacity_pools,
    price_usd_h=st.floats(min_value=0, max_value=1e6),
    launch=st.builds(Launch, group=names, lot=st.integers(0, 99), size=st.integers(1, 999)),
    created_at_s=instants,
    gang=names | st.just(""),
    purpose=names | st.just(""),
    replaces=st.lists(names, max_size=3).map(tuple),
    also_for=st.lists(names, max_size=3).map(tuple),
    resources=amounts,
    layout=names | st.just(""),
    gpu_cuts=gpu_cuts,
    startup_taints=startup_taints,
    instance_id=names | st.just(""),
    node=names | st.just(""),
    launched_at_s=maybe_instants,
    registered_at_s=maybe_instants,
    ready_at_s=maybe_instants,
    emptied_at_s=maybe_instants,
    recut_at_s=maybe_instants,
    cut=st.none() | cut_orders,
    gpu_conditions=st.lists(
        st.builds(MachineEvent, at_s=instants, what=st.sampled_from(("GpuFailed", "GpuNeedsReset")), message=words),
        max_size=2,
        unique_by=lambda it: it.what,
    ).map(tuple),
    history=st.lists(st.builds(MachineEvent, at_s=instants, what=names, message=words), max_size=3).map(tuple),
    advised_at_s=maybe_instants,
    deleting=st.booleans(),
    disruption=st.none() | disruptions,
    failure=failures,
    list_usd_h=st.none() | st.floats(min_value=0, max_value=1e6),
) | st.builds(
    Claim,
    name=names,
    uid=names,
    node_pool=names,
    pool_hash=st.just(""),
    capacity_pool=capacity_pools,
    price_usd_h=st.floats(min_value=0, max_value=1e6),
    launch=st.builds(Launch, group=names, lot=st.just(0), size=st.just(1)),
    created_at_s=instants,
    startup_taints=startup_taints,
    adopts=st.just("i-0a1b"),
    instance_id=st.just("i-0a1b"),
    launched_at_s=instants,
)
"""Any claim; one that adopts has its instance, and counts as launched, from the first."""
layout_records = st.builds(
    LayoutRecord,
    pool=names,
    declared=st.lists(names, max_size=2).map(tuple),
    content=names,
    since_s=instants,
    failures=st.lists(st.builds(CutFailure, at_s=instants, claim=names, message=words), max_size=2).map(tuple),
    proven=st.booleans(),
    former=names | st.just(""),
    rolled_back=st.booleans(),
)
counts = st.integers(min_value=0, max_value=10**6)
tallies = st.builds(
    RevisionTally,
    at_s=instants,
    nodes_removed=counts,
    nodes_added=counts,
    usd_h_added=st.floats(min_value=0, max_value=1e6),
    gangs_evicted=counts,
    nodes=counts,
    revisions=st.integers(min_value=1, max_value=99),
    usd_h_exposed=st.floats(min_value=0, max_value=1e6),
)
convergences = st.tuples(counts, counts).flatmap(
    lambda sizes: st.builds(
        Convergence,
        revision=words,
        began_s=instants,
        moved_at_s=instants,
        phase=st.sampled_from(ConvergencePhase),
        total=st.just(max(sizes)),
        left=st.just(min(sizes)),
        message=words,
        subjects=st.just(frozenset()),
    )
)
reports = st.builds(
    SyncReport,
    day=st.lists(tallies, max_size=MOST_TALLIES).map(tuple),
    name=names,
    observed=texts,
    attempted=texts,
    applied=texts,
    applied_plan=names,
    verified=texts,
    verified_signer=texts,
    handled_request=texts,
    findings=st.lists(
        st.builds(
            Finding,
            type=st.sampled_from(("Ready", "Reconciling", "Stalled", "SourceVerified", "DriftDetected")),
            holds=st.sampled_from((True, False, None)),
            reason=reasons,
            message=words,
        ),
        max_size=5,
        unique_by=lambda finding: finding.type,
    ).map(tuple),
    convergence=st.none() | convergences,
    rollout=st.none()
    | st.builds(RolloutProgress, templates=names, began_s=instants, pool=st.just("") | names, failure=words),
    layouts=st.lists(layout_records, max_size=2, unique_by=lambda it: it.pool).map(
        lambda its: {it.pool: it for it in its}
    ),
    history=st.lists(
        st.builds(
            SyncAttempt,
            revision=names,
            outcome=reasons,
            first_at_s=instants,
            last_at_s=instants,
            count=st.integers(1, 999),
            duration_s=st.floats(0, 1e4),
        ),
        max_size=5,
    ).map(tuple),
    plan=st.none()
    | st.builds(
        PlanSummary,
        nodes_added=st.integers(0, 99),
        nodes_removed=st.integers(0, 99),
        gangs_evicted=st.integers(0, 99),
        usd_per_hour_before=st.floats(0, 1e6),
        usd_per_hour_after=st.floats(0, 1e6),
        text=words,
        id=names,
    ),
    problems=st.lists(
        st.builds(SyncProblem, file=names, line=st.integers(0, 999), column=st.integers(0, 999), message=words),
        max_size=20,
    ).map(tuple),
    problem_count=st.integers(20, 999),
)


def as_stored(body: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """What the server would hold after the create and the status write, with fields of other writers mixed in."""
    stored: dict[str, Any] = {**body, "unknown": [1, {"a": None}]}
    stored["metadata"] = {**body["metadata"], "resourceVersion": "7", "managedFields": [{"manager": "x"}], **metadata}
    if status is not None:
        assert status["metadata"]["name"] == body["metadata"]["name"]
        stored["status"] = {**status["status"], "unknownStatus": {"b": 1}}
    return stored
