"""The agent of one cluster of several: what is a revision for it, and what its Cluster suspends."""

import json

import pytest

from agent.failures import Failures
from agent.inbox import MergeApproved, Pushed
from agent.planning import PlanJob
from agent.reports import sync_report
from agent.sync import Sync
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from providers.git.history import Ancestors, Lineage
from providers.git.selector import Target
from providers.kube.objects import SyncReport
from tests.agent.scenes import CATALOG, doc, files, pool, queue, team
from tests.support.fleets import NOW

EMPTY = Snapshot(now_s=NOW, catalog=CATALOG)
CLUSTER = "apiVersion: muster.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def commit(number: int) -> str:
    return f"{number:040x}"


def repository(a: str = "", b: str = "", nodes: int = 4, spec: str = "{bases: [../../base]}") -> dict[str, str]:
    """Two clusters over one base; `a` and `b` are what stands in a file of their own."""
    found = {
        "base/fleet.yaml": files(pool(limits={"nodes": nodes}), team(), queue())["fleet.yaml"],
        "clusters/a/cluster.yaml": CLUSTER.format(name="a", spec=spec),
        "clusters/b/cluster.yaml": CLUSTER.format(name="b", spec="{bases: [../../base]}"),
    }
    return found | ({"clusters/a/own.yaml": a} if a else {}) | ({"clusters/b/own.yaml": b} if b else {})


def other(name: str) -> str:
    return json.dumps(pool(name, types=("p5.48xlarge",)))


def approving() -> str:
    return json.dumps(doc("FleetPolicy", "p", approvals={"required": 1}))


def push(number: int, fleet: dict[str, str], confirms: frozenset[str] = frozenset()) -> Pushed:
    """A commit of a straight history."""
    raw = b"".join(bytes.fromhex(commit(it)) for it in range(1, number + 1))
    lineage = Lineage(Target("refs/heads/main", commit(number)), Ancestors(raw))
    content = {path: text.encode() for path, text in fleet.items()}
    return Pushed(f"main@sha1:{commit(number)}", content, lineage=lineage, confirms=confirms)


class Adopted:
    """An agent's sync of cluster `a`, and what came into force."""

    def __init__(self, cluster: str = "a") -> None:
        self.found: list[tuple[str, Fleet]] = []
        self.sync = Sync(lambda revision, fleet: self.found.append((revision[-1:], fleet)), cluster=cluster)

    def hears(self, *pushed: Pushed) -> None:
        for event in pushed:
            self.sync.hear(event)
            self.settles()

    def settles(self) -> None:
        for _ in range(3):
            job = self.sync.due(EMPTY, NOW)
            if job is not None:
                self.sync.judge(job(), NOW)

    @property
    def revisions(self) -> list[str]:
        return [revision for revision, _ in self.found]

    def conditions(self) -> dict[str, tuple[bool, str]]:
        report = sync_report("a", self.sync.state, 0, SyncReport("a"), Failures())
        return {it.type: (it.holds, it.reason) for it in report.findings}


def test_an_agent_reads_its_own_cluster() -> None:
    a, b = Adopted("a"), Adopted("b")
    for one in (a, b):
        one.hears(push(1, repository(b=other("spare"))))
    assert [set(fleet.node_pools) for _, fleet in a.found + b.found] == [{"h100"}, {"h100", "spare"}]


def test_an_agent_without_a_cluster_of_its_name_says_so_and_keeps_what_is_in_force() -> None:
    one = Adopted("c")
    one.hears(push(1, files(pool(), team(), queue())), push(2, repository()))
    assert one.sync.state.outcome == "Invalid"
    assert "no Cluster is named 'c'; there are 'a', 'b'" in one.sync.state.message
    assert one.revisions == ["1"]


def test_a_change_of_another_cluster_is_no_revision_of_this_one() -> None:
    one = Adopted()
    one.hears(push(1, repository()), push(2, repository(b=other("spare"))))
    state = one.sync.state
    assert one.revisions == ["1"]
    assert (state.outcome, state.applied[-1], state.attempted[-1], state.observed[-1]) == ("Applied", "1", "1", "2")
    assert state.standing[1].endswith("changes nothing for this cluster")
    assert one.conditions()["Ready"] == (True, "Applied")
    one.hears(push(3, repository(b=other("spare"), nodes=5)))
    assert one.revisions == ["1", "3"]
    assert "changes nothing" not in one.sync.state.standing[1]


def test_what_takes_back_a_refused_revision_ends_the_refusal() -> None:
    one = Adopted()
    one.hears(push(1, repository()), push(2, repository(a="kind: Nothing\n")))
    assert one.sync.state.outcome == "Invalid"
    one.hears(push(3, repository()))
    assert (one.sync.state.outcome, one.sync.state.applied[-1]) == ("Applied", "1")
    assert "which is in force" in one.sync.state.message


def test_a_change_of_another_cluster_does_not_cost_an_approval() -> None:
    one = Adopted()
    one.hears(push(1, repository(a=approving())), push(2, repository(a=approving(), nodes=5)))
    assert one.sync.state.outcome == "Unapproved"
    one.hears(push(3, repository(a=approving(), nodes=5, b=other("spare"))))
    state = one.sync.state
    assert (state.outcome, state.attempted[-1], state.passed_by[-1]) == ("Unapproved", "2", "3")
    assert one.revisions == ["1"]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(push(3, repository(a=approving(), nodes=6)), id="it changes this cluster"),
        pytest.param(push(3, repository(a=approving(), nodes=5), frozenset({"nodepool/h100"})), id="it confirms"),
        pytest.param(
            Pushed(f"main@sha1:{commit(9)}", push(3, repository(a=approving(), nodes=5)).files,
                   lineage=Lineage(Target("refs/heads/main", commit(9)), Ancestors(bytes.fromhex(commit(1))))),
            id="it left behind what waits",
        ),
    ],
)  # fmt: skip
def test_any_other_revision_is_one_of_its_own(later: Pushed) -> None:
    one = Adopted()
    one.hears(push(1, repository(a=approving())), push(2, repository(a=approving(), nodes=5)), later)
    assert one.sync.state.attempted == later.revision


def test_a_suspended_cluster_keeps_what_is_in_force_until_a_revision_says_otherwise() -> None:
    spec = "{bases: [../../base], suspend: true, suspendReason: the rack is moved}"
    one = Adopted()
    one.hears(push(1, repository()), push(2, repository(spec=spec)), push(3, repository(spec=spec, nodes=9)))
    assert one.revisions == ["1"]
    assert one.sync.state.standing == (
        "Suspended", f"the Cluster a is suspended: the rack is moved; main@sha1:{commit(1)} stays in force"
    )  # fmt: skip
    told = one.conditions()
    assert (told["Suspended"], told["Ready"]) == ((True, "SuspendedInGit"), (False, "Suspended"))
    assert not {"Reconciling", "Stalled"} & told.keys(), "somebody asked for it"
    assert one.sync.due(EMPTY, NOW + 1e6) is None, "nothing but a push ends it"
    one.hears(push(4, repository(nodes=9)))
    assert one.revisions == ["1", "4"]
    assert "Suspended" not in one.conditions()


def test_a_suspended_cluster_is_restored_as_it_was_and_begins_with_nothing() -> None:
    spec = "{bases: [../../base], suspend: true}"
    fresh = Adopted()
    fresh.hears(push(1, repository(spec=spec)))
    assert (fresh.sync.fleet, fresh.revisions) == (None, [])
    assert "nothing is in force yet" in fresh.sync.state.message
    again = Adopted()
    again.sync.expect(f"main@sha1:{commit(1)}")
    event = push(1, repository())
    again.sync.hear(Pushed(event.revision, event.files, restored=True))
    again.sync.hear(push(2, repository(spec=spec)))
    again.settles()
    assert again.revisions == ["1"]
    assert again.sync.state.outcome == "Suspended"


def test_a_plan_says_that_the_cluster_is_suspended() -> None:
    one = Adopted()
    one.hears(push(1, repository()))
    later = push(2, repository(spec="{bases: [../../base], suspend: true}", nodes=9))
    planned = PlanJob(later, one.sync.fleet, one.sync.state.applied, EMPTY, cluster="a")()
    assert planned.plan is not None
    assert planned.plan.held == "held: the Cluster a is suspended"
    assert {it.address for it in planned.plan.declared} == {"cluster/a", "nodepool/h100"}


def test_an_approval_of_what_waits_still_counts_after_another_cluster_changed() -> None:
    one = Adopted()
    one.hears(push(1, repository(a=approving())), push(2, repository(a=approving(), nodes=5)))
    one.hears(push(3, repository(a=approving(), nodes=5, b=other("spare"))))
    one.sync.hear(MergeApproved(commit(2), ()))
    assert one.sync.due(EMPTY, NOW) is not None, "it is judged again"
