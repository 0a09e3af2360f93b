"""One typical value of each kind, for golden files and walks through the store."""

from dataclasses import replace

from fleet.actions import Announce, PatchNode, ReleasePod
from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.plan.guards import RevisionTally
from fleet.snapshot import (
    CapacityPool,
    Claim,
    Eviction,
    Gang,
    GangState,
    JobRef,
    Launch,
    NodeDisruption,
    Pin,
    Pod,
    PodSet,
    RolloutProgress,
    Slice,
)
from model.kinds import RequirementTerm, Taint, Toleration
from providers.kube.objects import (
    DriftReport,
    Finding,
    FlavorUsage,
    NodePoolReport,
    PlanSummary,
    QueueReport,
    SyncAttempt,
    SyncProblem,
    SyncReport,
)
from tests.providers.kube.objects.values import NOW_S

JOB = JobRef("batch/v1", "Job", "research", "train", "6c1f")
PENDING = Gang(
    uid="6c1f",
    namespace="research",
    workload="job-train",
    job=JOB,
    queue="research",
    priority_class="normal",
    priority=100,
    pod_sets=(
        PodSet(
            namespace="research",
            name="main",
            count=2,
            requests={"cpu": 90_000, "memory": 1024**4, "nvidia.com/gpu": 8},
            node_selector={"kubernetes.io/arch": "amd64"},
            required_affinity=(
                (RequirementTerm(key="topology.kubernetes.io/zone", operator="In", values=("us-east-1a",)),),
            ),
            tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),),
            required_topology="topology.kubernetes.io/zone",
        ),
    ),
    created_at_s=NOW_S - 600,
    reason="WaitingForQuota",
    message="8 more nvidia.com/gpu of h100-full are needed; research borrows all that is idle",
    since_s=NOW_S - 600,
)
ADMITTED = replace(
    PENDING,
    state=GangState.ADMITTED,
    reason="Admitted",
    message="Placed on 2 nodes",
    since_s=NOW_S - 60.5,
    flavors={"main": ("h100-full",)},
    pins=(Pin("main", "ip-10-0-0-1", "h100-full-7k2", 1), Pin("main", "ip-10-0-0-2", "h100-full-9xq", 1)),
    quota_reserved_at_s=NOW_S - 300,
    admitted_at_s=NOW_S - 60.5,
    pods_ready=True,
)
LAYERED = replace(
    PENDING,
    pod_sets=(
        PodSet("leader", 1, {"cpu": 4_000}, namespace="research", required_topology="example.com/block", group="ring"),
        PodSet(
            "workers",
            16,
            {"nvidia.com/gpu": 8},
            namespace="research",
            preferred_topology="example.com/block",
            slices=(Slice("example.com/rack", 8), Slice("kubernetes.io/hostname", 2)),
            group="ring",
            min_count=8,
            core=12,
        ),
        PodSet(
            "loaders",
            4,
            {"cpu": 8_000},
            namespace="research",
            any_topology=True,
            slices=(Slice("kubernetes.io/hostname", 2),),
        ),
    ),
)
BACKING_OFF = replace(
    PENDING,
    reason="Backoff",
    message="Considered again in 2m",
    eviction=Eviction("Preempted", "To make room for prod/serve", NOW_S - 30, admitted_at_s=NOW_S - 90),
    evictions=1,
    requeue_at_s=NOW_S + 120,
)
BORN = Claim(
    name="h100-full-7k2",
    uid="c1",
    node_pool="h100-full",
    pool_hash="9f2c",
    capacity_pool=CapacityPool("on-demand", "p5.48xlarge", "us-east-1a"),
    price_usd_h=55.04,
    launch=Launch("lg-1", 0, 2),
    created_at_s=NOW_S - 300,
    gang="6c1f",
    replaces=("h100-full-old",),
    resources={"cpu": 191_450, "memory": 2 * 1024**4, "nvidia.com/gpu": 8},
)
LEAVING = replace(
    BORN,
    instance_id="i-0abc",
    node="ip-10-0-0-1",
    launched_at_s=NOW_S - 290,
    registered_at_s=NOW_S - 200,
    ready_at_s=NOW_S - 100,
    emptied_at_s=NOW_S - 50,
    disruption=NodeDisruption("Drifted", "The pool's template has changed", NOW_S - 10, NOW_S + 600),
)
QUEUE = QueueReport(
    "research",
    pending=3,
    reserving=1,
    admitted=2,
    usage=(
        FlavorUsage("h100-full", "nvidia.com/gpu", quota=16, used=24, borrowed=8),
        FlavorUsage("h100-full", "cpu", quota=0, used=180_000),
    ),
    findings=(Finding("Active", True, "Ready", "Admits work"),),
)
POOL = NodePoolReport(
    "h100-full",
    nodes=3,
    ready=2,
    gpus=16,
    resources={"nvidia.com/gpu": 16, "nvidia.com/mig-1g.10gb": 7, "cpu": 574_350},
    usd_per_hour=165.12,
    limit_resources={"nvidia.com/gpu": 64},
    limit_nodes=8,
    shortages={CapacityPool("on-demand", "p5.48xlarge", "us-east-1a"): NOW_S + 120},
    priced_at_s=NOW_S - 900,
    drifted=(DriftReport("AMIDrift", "its image is ami-1, node pool h100-full now gets ami-2", 1, ("h100-full-0",)),),
    findings=(Finding("Ready", True, "Ready"),),
)
SYNC = SyncReport(
    "fleet",
    observed="main@sha1:2222222222222222222222222222222222222222",
    attempted="main@sha1:2222222222222222222222222222222222222222",
    applied="main@sha1:1111111111111111111111111111111111111111",
    verified="main@sha1:2222222222222222222222222222222222222222",
    verified_signer="ada@example.com",
    findings=(
        Finding("Ready", False, "InvalidFleet", "1 problem; the last good revision stays in force"),
        Finding("Stalled", True, "InvalidFleet", "Waits for another revision"),
        Finding("SourceVerified", True, "SignatureAccepted", "Signed by ada@example.com"),
    ),
    history=(
        SyncAttempt("main@sha1:2222", "InvalidFleet", NOW_S - 120, NOW_S, count=3, duration_s=0.21),
        SyncAttempt(
            "main@sha1:1111",
            "Applied",
            NOW_S - 900,
            NOW_S - 180,
            count=7,
            duration_s=0.4,
            plan="5e0c1b7f9a2d",
            author="Ada <ada@example.com>",
            signer="ada@example.com",
            request=7,
            merged_by="grace",
            approved_by=("eve", "grace"),
        ),
    ),
    applied_plan="5e0c1b7f9a2d",
    plan=PlanSummary(1, 0, 0, 165.12, 220.16, "+1 node, +55.04 USD/h", "7d3c2a9b41b3"),
    problems=(SyncProblem("queues.yaml", 7, 11, "queue 'research' names the flavor 'h100', which does not exist"),),
    problem_count=1,
    day=(RevisionTally(NOW_S - 900, 0, 1, 55.04, 2, 4), RevisionTally(NOW_S - 60, 3, 0, 0.0, 0, 5, revisions=2)),
    handled_request="2026-03-01T00:00:00Z",
    convergence=Convergence(
        "main@sha1:1111",
        NOW_S - 180,
        NOW_S - 60,
        ConvergencePhase.PROGRESSING,
        total=8,
        left=3,
        message="5 of 8 are as declared; left: claim/a: the template of node pool a has changed",
    ),
    rollout=RolloutProgress("0123456789abcdef", NOW_S - 180, "a", "a-1 (LaunchRefused: 0 of 1 machine)"),
)
ANNOUNCE = Announce(JOB, "Admitted", "Placed on 2 nodes", "Normal")
POD = Pod(uid="p1", namespace="research", name="train-0-x7k2p", node="", phase="Pending", requests={}, gated=True)
RELEASE = ReleasePod(POD, "ip-10-0-0-1.ec2.internal", "ip-10-0-0-1")
PATCH_NODE = PatchNode(
    "ip-10-0-0-1",
    labels={"muster.dev/mig-layout": "half"},
    add_taints=(Taint(key="muster.dev/disrupted", effect="NoSchedule"),),
    remove_taints=("muster.dev/unregistered",),
)
