"""A forge and its repository as values: what the reviewer asks of them, without a wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from providers.forge.port import (
    Approval,
    Comment,
    CommitStatus,
    Deployment,
    ForgeError,
    Permission,
    ProposedChange,
    PullRequest,
    RequestState,
)
from providers.git.errors import MergeConflict, RevisionNotFound
from providers.git.files import Files

BOT = "muster-bot"


def commit(number: int) -> str:
    """A commit id."""
    return f"{number:040x}"


@dataclass
class ForgeInMemory:
    """Keeps requests, comments and statuses; `fails` is raised by everything while it is set, `fails_to_write` by
    what writes comments and statuses."""

    requests: dict[int, PullRequest] = field(default_factory=dict)
    said: dict[int, list[Comment]] = field(default_factory=dict)
    statuses: dict[str, list[CommitStatus]] = field(default_factory=dict)
    may: dict[str, Permission] = field(default_factory=dict)
    approved: dict[int, list[Approval]] = field(default_factory=dict)
    teams: dict[str, frozenset[str]] = field(default_factory=dict)
    answers: list[tuple[int, bool]] = field(default_factory=list)
    """(comment, accepted)."""
    writes: int = 0
    listed: int = 0
    """How often the merged requests were asked for."""
    read: int = 0
    """How often comments were."""
    fails: Exception | None = None
    fails_to_write: Exception | None = None
    sick: frozenset[int] = frozenset()
    refuses_statuses: bool = False
    refuses_deployments: bool = False
    deployed: list[Deployment] = field(default_factory=list)
    refuses_lists: ForgeError | None = None
    """Raised where merged requests are asked for."""
    refuses_proposals: bool = False
    proposed: list[ProposedChange] = field(default_factory=list)
    sickness: Exception = field(default_factory=lambda: ValueError("a surprise"))

    def opens(self, number: int, head: str, author: str = "ada", at_s: float = 0.0) -> PullRequest:
        """Somebody opens a request, or pushes to it."""
        url = f"https://forge.example.com/pulls/{number}"
        ref = f"refs/pull/{number}/head"
        self.requests[number] = PullRequest(
            number, "More GPUs", author, head, ref, "main", False, RequestState.OPEN, "", at_s, url
        )
        return self.requests[number]

    def merges(self, number: int, merged: str, by: str = "") -> None:
        """Somebody merges it."""
        self.requests[number] = replace(
            self.requests[number], state=RequestState.MERGED, merge_commit=merged, merger=by
        )

    def comment(self, number: int, author: str, text: str, at_s: float = 0.0) -> None:
        """Somebody comments, which changes the request."""
        self._add(number, author, text, at_s)
        if number in self.requests:
            changed_s = max(at_s, self.requests[number].updated_at_s)
            self.requests[number] = replace(self.requests[number], updated_at_s=changed_s)

    def text(self, number: int) -> str:
        """The one comment of ours."""
        (only,) = [it.text for it in self.said.get(number, ()) if it.ours]
        return only

    def _add(self, number: int, author: str, text: str, at_s: float = 0.0) -> Comment:
        known = sum(map(len, self.said.values()))
        self.said.setdefault(number, []).append(Comment(known + 1, author, text, at_s, author == BOT))
        return self.said[number][-1]

    def _asked(self, *, writes: bool = False) -> None:
        fails = self.fails or (self.fails_to_write if writes else None)
        if fails is not None:
            raise fails

    # -- the port --

    def __enter__(self) -> Self:
        """See `Forge`."""
        return self

    def __exit__(self, *_error: object) -> None:
        """See `Forge`."""

    def open_requests(self, base: str) -> Sequence[PullRequest]:
        """See `Forge`."""
        self._asked()
        return [it for it in self.requests.values() if it.state is RequestState.OPEN and it.base == base]

    def request(self, number: int) -> PullRequest | None:
        """See `Forge`."""
        self._asked()
        return self.requests.get(number)

    def merged_by(self, commit: str) -> PullRequest | None:
        """See `Forge`."""
        self._asked()
        return next((it for it in self.requests.values() if it.merge_commit == commit), None)

    def merged_lately(self, base: str) -> Sequence[PullRequest]:
        """See `Forge`."""
        self._asked()
        self.listed += 1
        if self.refuses_lists is not None:
            raise self.refuses_lists
        found = (it for it in self.requests.values() if it.state is RequestState.MERGED and it.base == base)
        return sorted(found, key=lambda it: (-it.updated_at_s, it.number))[:30]

    def permission(self, user: str) -> Permission:
        """See `Forge`."""
        self._asked()
        return self.may.get(user, Permission.READ)

    def is_member(self, user: str, team: str) -> bool:
        """See `Forge`."""
        self._asked()
        if team not in self.teams:
            raise ForgeError(f"there is no team {team}")
        return user in self.teams[team]

    def approvals(self, number: int) -> Sequence[Approval]:
        """See `Forge`."""
        self._asked()
        return tuple(self.approved.get(number, ()))

    def comments(self, number: int) -> Sequence[Comment]:
        """See `Forge`."""
        self._asked()
        self.read += 1
        if number in self.sick:
            raise self.sickness
        return tuple(self.said.get(number, ()))

    def write_comment(self, number: int, text: str) -> Comment:
        """See `Forge`."""
        self._asked(writes=True)
        self.writes += 1
        return self._add(number, BOT, text)

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """See `Forge`."""
        self._asked(writes=True)
        self.writes += 1
        self.said[number] = [replace(it, text=text) if it.id == comment.id else it for it in self.said[number]]

    def acknowledge(self, number: int, comment: Comment, *, accepted: bool) -> None:
        """See `Forge`."""
        self._asked()
        self.answers.append((comment.id, accepted))

    def put_status(self, commit: str, status: CommitStatus) -> None:
        """See `Forge`."""
        self._asked(writes=True)
        if self.refuses_statuses:
            raise ForgeError("403: the token may not set statuses")
        self.statuses.setdefault(commit, []).append(status)

    def put_deployment(self, deployment: Deployment) -> None:
        """See `Forge`."""
        self._asked()
        if self.refuses_deployments:
            raise ForgeError("403: the token may not deploy")
        self.deployed.append(deployment)

    def requests_from(self, branch: str) -> Sequence[PullRequest]:
        """See `Forge`."""
        self._asked()
        return [it for it in self.requests.values() if it.branch == branch and not it.from_fork]

    def propose(self, change: ProposedChange) -> int:
        """See `Forge`."""
        self._asked()
        if self.refuses_proposals:
            raise ForgeError("403: the token may not write contents")
        self.proposed.append(change)
        number = max(self.requests, default=100) + 1
        made = self.opens(number, commit(1000 + number), BOT)
        self.requests[number] = replace(made, title=change.title, branch=change.branch)
        return number

    def close_request(self, number: int) -> None:
        """See `Forge`."""
        self._asked()
        self.requests[number] = replace(self.requests[number], state=RequestState.CLOSED)


@dataclass
class CommitsInMemory:
    """Commits by ref, and what merging a head gives; a head without files does not merge."""

    refs: dict[str, str] = field(default_factory=dict)
    merged: dict[str, Mapping[str, bytes] | None] = field(default_factory=dict)

    def fetch_ref(self, name: str) -> str:
        """See `ProposedCommits`."""
        if name not in self.refs:
            raise RevisionNotFound(f"there is no {name}")
        return self.refs[name]

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """See `ProposedCommits`."""
        found = self.merged[head_oid]
        if found is None:
            raise MergeConflict(f"{head_oid} and {base_oid} both change fleet.yaml")
        return Files(found)
