"""A reviewer of one cluster before a forge and commits in memory."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.inbox import ApprovalsSeen, Done, Event, MergeApproved, MergeSeen, ReviewTrouble
from agent.record import Record
from agent.review.approvers import Approvers
from agent.review.forecaster import Forecaster
from agent.review.reviewer import Reviewer
from agent.review.world import LastPass
from agent.sync import SyncState
from fleet.actions import OpenGang, SaveGang
from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.snapshot import GangState, Snapshot
from model.loader import load
from providers.clock import VirtualClock
from providers.forge.port import Permission, Verdict
from providers.git.files import Files
from tests.agent.review.forge import CommitsInMemory, ForgeInMemory, commit
from tests.agent.scenes import CATALOG, files, pool, queue, simple, team
from tests.support.fleets import NOW, gang, pod_set

BASE, HEAD, NEXT = commit(1), commit(2), commit(3)
STATUS = "muster/prod"


def encoded(fleet: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in fleet.items()}


class ReviewPlace:
    """A reviewer of one cluster, with a fleet in force."""

    def __init__(self, fleet: dict[str, str] | None = None, cluster: str = "prod", **shared: Any) -> None:
        self.clock: VirtualClock = shared.get("clock") or VirtualClock(NOW)
        self.forge: ForgeInMemory = shared.get("forge") or ForgeInMemory(may={"ada": Permission.WRITE})
        self.commits: CommitsInMemory = shared.get("commits") or CommitsInMemory({"refs/heads/main": BASE})
        self.state = SyncState(attempted=f"main@sha1:{BASE}", applied=f"main@sha1:{BASE}", outcome="Applied")
        self.world = LastPass(load(encoded(fleet or simple())), Snapshot(now_s=NOW, catalog=CATALOG))
        self.counted: list[str] = []
        self.told: list[str] = []
        self.merges: list[MergeApproved] = []
        self.hands: list[MergeSeen] = []
        self.leads = True
        self.forecasts: Forecaster | None = None
        self.reviewer = self.restarted(cluster)

    def restarted(self, cluster: str = "prod") -> Reviewer:
        def tell(event: Event) -> None:
            match event:
                case ReviewTrouble(message=message):
                    self.told.append(message)
                case ApprovalsSeen(approved=approved):
                    self.state = replace(self.state, approved=approved)
                case MergeApproved():
                    self.merges.append(event)
                case MergeSeen():
                    self.hands.append(event)

        return Reviewer(
            cluster, "main", lambda: self.forge, self.commits, lambda: self.world, lambda: self.state,
            self.clock, 60.0, self.counted.append, tell, Approvers(tell, self.state.approved),
            leading=lambda: self.leads, forecasts=self.forecasts,
        )  # fmt: skip

    def proposes(self, fleet: Mapping[str, str] | None, head: str = HEAD, number: int = 7, author: str = "ada") -> None:
        """A request to merge a fleet; None does not merge."""
        self.forge.opens(number, head, author, self.clock.now())
        self.commits.refs[f"refs/pull/{number}/head"] = head
        self.commits.merged[head] = encoded(fleet) if fleet is not None else None

    def verdict(self, head: str = HEAD) -> tuple[Verdict, str]:
        last = self.forge.statuses[head][-1]
        assert last.name == STATUS
        return last.verdict, last.summary


def two_pools() -> dict[str, str]:
    return files(pool(), pool("more", types=("p5.48xlarge",)), team(), queue())


def follows(place: ReviewPlace, left: int, phase: str, outcome: str = "Applied", words: str = "m1 is drifted") -> None:
    """The revision NEXT stands so."""
    revision = f"main@sha1:{NEXT}"
    far = Convergence(revision, NOW, NOW, ConvergencePhase(phase), 3, left, words)
    applied = revision if outcome == "Applied" else ""
    place.state = SyncState(attempted=revision, applied=applied, outcome=outcome, message="so it is", convergence=far)
    place.reviewer.look()


class WhilePlanning(CommitsInMemory):
    """Commits that something happens beside while they are read."""

    def __init__(self, commits: CommitsInMemory, happens: Callable[[], object]) -> None:
        super().__init__(commits.refs, commits.merged)
        self._happens = happens

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        self._happens()
        return super().merged_files(base_oid, head_oid)


def recorded(path: Path, days: int = 3, queue_name: str = "t") -> Path:
    """Six gangs of one machine each at once, every day."""
    record = Record(path, 1 << 20)
    for number in range(6 * days):
        at_s = NOW + 86_400.0 * (number // 6)
        it = replace(
            gang(f"g{number}", queue=queue_name), namespace="t", uid=f"{number:08d}-uid", created_at_s=at_s,
            pod_sets=(pod_set(count=1, gpu=8),),
        )  # fmt: skip
        record.ended(Done(OpenGang(it)), at_s)
        over = replace(it, state=GangState.FINISHED, admitted_at_s=at_s, ran_before_s=3600.0)
        record.ended(Done(SaveGang(over)), at_s + 3600.0)
    record.close()
    return path
