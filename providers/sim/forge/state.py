"""What a pretended forge holds: one repository, its people, and what is said and stated about its requests."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from providers.clock import Clock
from providers.sim.forge.contents import ForgeContents, ForgeErrorAnswer, MemoryContents, blob_of

Role = Literal["admin", "maintain", "write", "triage", "read", "none"]
RATE = 5000
"""Requests of an hour, as of a token (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api)."""
WINDOW_S = 3600.0


@dataclass(frozen=True, slots=True)
class ForgeAccount:
    """A user, or the bot of an App."""

    id: int
    login: str
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class InstalledApp:
    """An App that is installed with the repository's owner; `public_key` (PEM) proves that a caller is the App."""

    id: int
    slug: str
    installation: int
    public_key: str


@dataclass(slots=True)
class StoredRequest:
    """A pull request. `fork` is the repository of its head: None for our own, 0 for one that is deleted."""

    number: int
    title: str
    author: ForgeAccount | None
    head: str
    head_branch: str
    base: str
    base_commit: str
    fork: int | None
    created_at_s: float
    updated_at_s: float
    """Of any change, comments among them."""
    pushed_at_s: float
    closed_at_s: float | None = None
    merged_at_s: float | None = None
    merge_commit: str | None = None
    merged_by: ForgeAccount | None = None


@dataclass(slots=True)
class StoredComment:
    """A comment of a request's conversation, with who reacted to it how."""

    id: int
    number: int
    author: ForgeAccount | None
    body: str
    created_at_s: float
    updated_at_s: float
    reactions: dict[tuple[int, str], int] = field(default_factory=dict)
    """Of an account, by what it says, the reaction's id."""


@dataclass(slots=True)
class StoredReview:
    """What somebody thought of a request: `state` is APPROVED, CHANGES_REQUESTED, COMMENTED or DISMISSED."""

    id: int
    number: int
    author: ForgeAccount | None
    state: str
    commit: str
    submitted_at_s: float


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """A commit status; the latest of a context counts."""

    id: int
    commit: str
    creator: ForgeAccount
    state: str
    context: str
    description: str | None
    target_url: str | None
    created_at_s: float


@dataclass(slots=True)
class StoredDeployment:
    """A commit in an environment, and what was said of it: states with their words, the last one counts."""

    id: int
    commit: str
    environment: str
    creator: ForgeAccount
    created_at_s: float
    statuses: list[tuple[int, str, str, str]] = field(default_factory=list)
    """(id, state, description, link)."""


@dataclass(slots=True)
class StoredCheckRun:
    """A check run; annotations of later requests join those that it has."""

    id: int
    commit: str
    name: str
    status: str
    conclusion: str | None
    details_url: str | None
    started_at_s: float
    title: str = ""
    summary: str = ""
    annotations: list[Mapping[str, Any]] = field(default_factory=list)


class ForgeState:
    """One repository (`owner/name`) and all that is known of it; thread-safe by `lock`, which its methods take.

    Ids and numbers count up, times are the clock's: the same calls make the same state.
    """

    def __init__(self, owner: str, name: str, clock: Clock, *, app: InstalledApp | None = None) -> None:
        self.lock = threading.RLock()
        self.owner = ForgeAccount(1, owner)
        self.name = name
        self.id = 1000
        self.clock = clock
        self.app = app
        self.bot = ForgeAccount(2, f"{app.slug}[bot]", is_bot=True) if app else None
        self.accounts: dict[str, ForgeAccount] = {owner: self.owner}
        self.roles: dict[str, Role] = {owner: "admin"}
        self.tokens: dict[str, ForgeAccount] = {}
        self.requests: dict[int, StoredRequest] = {}
        self.comments: dict[int, StoredComment] = {}
        self.reviews: dict[int, StoredReview] = {}
        self.teams: dict[str, dict[str, Literal["active", "pending"]]] = {}
        """Of a team (`ORG/NAME`) who is in it."""
        self.statuses: list[StoredStatus] = []
        self.check_runs: dict[int, StoredCheckRun] = {}
        self.deployments: dict[int, StoredDeployment] = {}
        self.commits: set[str] = set()
        self.contents: ForgeContents = MemoryContents()
        self.remaining = RATE
        self.resets_at_s = clock.now() + WINDOW_S
        self._numbers = itertools.count(1)
        self._ids = itertools.count(101)

    def account(self, login: str, role: Role = "none", *, token: str = "") -> ForgeAccount:
        """Adds somebody who has this role in the repository and may sign in by the token."""
        with self.lock:
            account = self.accounts.setdefault(login, ForgeAccount(next(self._ids), login))
            self.roles[login] = role
            if token:
                self.tokens[token] = account
            return account

    def issue_token(self) -> str:
        """Returns a new token of the App's installation."""
        with self.lock:
            if self.bot is None:
                raise ForgeErrorAnswer(422, "no App is installed")
            token = f"ghs_{next(self._ids)}"
            self.tokens[token] = self.bot
            return token

    def open(
        self,
        title: str,
        author: ForgeAccount | None,
        head: str,
        *,
        base: str = "main",
        branch: str = "change",
        fork: int | None = None,
    ) -> StoredRequest:
        """Opens a request to merge the commit `head`."""
        with self.lock:
            now_s, number = self.clock.now(), next(self._numbers)
            request = StoredRequest(number, title, author, head, branch, base, "0" * 40, fork, now_s, now_s, now_s)
            request.merge_commit = "f" * 40  # the trial merge that GitHub makes of each
            self.requests[number] = request
            self.commits |= {head}
            return request

    def push(self, number: int, head: str) -> None:
        """Gives a request another head."""
        with self.lock:
            request = self.requests[number]
            request.head = head
            request.pushed_at_s = request.updated_at_s = self.clock.now()
            self.commits |= {head}

    def propose(self, author: ForgeAccount, branch: str, base: str, title: str) -> StoredRequest:
        """Opens a request from a branch, as its API does."""
        with self.lock:
            head = self.contents.commit_of(branch)
            if not head:
                raise ForgeErrorAnswer(422, "Validation Failed: head is invalid")
            same = (it for it in self.requests.values() if it.head_branch == branch and it.closed_at_s is None)
            if next(same, None) is not None:
                raise ForgeErrorAnswer(422, f"A pull request already exists for {self.owner.login}:{branch}.")
            return self.open(title, author, head, base=base, branch=branch)

    def write_file(self, branch: str, path: str, before: str, content: bytes, words: str) -> str:
        """Commits a file whose content was, by its id, `before`; returns the commit."""
        with self.lock:
            held = self.contents.read(branch, path)
            if held is None:
                raise ForgeErrorAnswer(404, "Not Found")
            if before and blob_of(held) != before:
                raise ForgeErrorAnswer(409, f"{path} does not match {before}")
            made = self.contents.write(branch, path, content, words)
            self.commits |= {made}
            return made

    def close(self, number: int, *, merge_commit: str | None = None, by: ForgeAccount | None = None) -> None:
        """Closes a request, by merging it where a merge commit is given: the owner has, unless it is said who."""
        with self.lock:
            request, now_s = self.requests[number], self.clock.now()
            request.closed_at_s = request.updated_at_s = now_s
            if merge_commit is not None:
                request.merged_at_s, request.merge_commit = now_s, merge_commit
                request.merged_by = by or self.owner
                self.commits |= {merge_commit}

    def comment(self, number: int, author: ForgeAccount | None, body: str) -> StoredComment:
        """Adds a comment. ForgeErrorAnswer where a forge takes none of this length."""
        with self.lock:
            now_s = self.clock.now()
            comment = StoredComment(next(self._ids), number, author, _accepted(body), now_s, now_s)
            self.comments[comment.id] = comment
            if number in self.requests:
                self.requests[number].updated_at_s = now_s
            return comment

    def change(self, comment: StoredComment, body: str) -> None:
        """Gives a comment another text."""
        with self.lock:
            comment.body, comment.updated_at_s = _accepted(body), self.clock.now()
            if comment.number in self.requests:
                self.requests[comment.number].updated_at_s = comment.updated_at_s

    def review(self, number: int, author: ForgeAccount | None, state: str) -> StoredReview:
        """Somebody reviews a request's head."""
        with self.lock:
            review = StoredReview(next(self._ids), number, author, state, self.requests[number].head, self.clock.now())
            self.reviews[review.id] = review
            return review

    def dismiss(self, number: int, author: ForgeAccount) -> None:
        """Somebody takes back, or loses, the approvals of a request."""
        with self.lock:
            for review in self.reviews.values():
                if (review.number, review.author, review.state) == (number, author, "APPROVED"):
                    review.state = "DISMISSED"

    def react(self, comment: StoredComment, author: ForgeAccount, content: str) -> tuple[int, bool]:
        """Returns the id of somebody's reaction and whether it is a new one."""
        with self.lock:
            is_new = (author.id, content) not in comment.reactions
            return comment.reactions.setdefault((author.id, content), next(self._ids)), is_new

    def state_of(self, commit: str, creator: ForgeAccount, said: Mapping[str, Any]) -> StoredStatus:
        """Sets a commit status."""
        with self.lock:
            self._known(commit)
            if len(said.get("description") or "") > 140:
                raise ForgeErrorAnswer(422, "description is too long (maximum is 140 characters)")
            told = (said.get("context", "default"), said.get("description"), said.get("target_url"))
            status = StoredStatus(next(self._ids), commit, creator, said["state"], *told, self.clock.now())
            self.statuses.append(status)
            return status

    def deploy(self, commit: str, environment: str, creator: ForgeAccount) -> StoredDeployment:
        """Makes a deployment of a commit."""
        with self.lock:
            self._known(commit)
            made = StoredDeployment(next(self._ids), commit, environment, creator, self.clock.now())
            self.deployments[made.id] = made
            return made

    def tell_deployment(self, deployment: StoredDeployment, state: str, description: str = "", link: str = "") -> None:
        """Says something of a deployment."""
        with self.lock:
            if len(description) > 140:
                raise ForgeErrorAnswer(422, "description is too long (maximum is 140 characters)")
            deployment.statuses.append((next(self._ids), state, description, link))

    def start_check(self, said: Mapping[str, Any]) -> StoredCheckRun:
        """Makes a check run."""
        with self.lock:
            self._known(said["head_sha"])
            told = (said.get("status", "queued"), said.get("conclusion"), said.get("details_url"))
            run = StoredCheckRun(next(self._ids), said["head_sha"], said["name"], *told, self.clock.now())
            self._say(run, said.get("output"))
            self.check_runs[run.id] = run
            return run

    def change_check(self, run: StoredCheckRun, said: Mapping[str, Any]) -> None:
        """Changes a check run, and adds to its annotations."""
        with self.lock:
            run.status = said.get("status", run.status)
            run.conclusion = said.get("conclusion", run.conclusion)
            self._say(run, said.get("output"))

    def latest_statuses(self, commit: str) -> dict[str, StoredStatus]:
        """Returns the statuses of a commit that count, by context."""
        with self.lock:
            return {status.context: status for status in self.statuses if status.commit == commit}

    def latest_checks(self, commit: str) -> dict[str, StoredCheckRun]:
        """Returns the check runs of a commit that are shown, by name."""
        with self.lock:
            return {run.name: run for run in self.check_runs.values() if run.commit == commit}

    def is_exhausted(self) -> bool:
        """Returns whether the primary rate limit is used up."""
        with self.lock:
            now_s = self.clock.now()
            if now_s >= self.resets_at_s:
                self.remaining, self.resets_at_s = RATE, now_s + WINDOW_S
            return self.remaining <= 0

    def spend(self) -> None:
        """Takes a request from the primary rate limit."""
        with self.lock:
            self.remaining = max(0, self.remaining - 1)

    def _say(self, run: StoredCheckRun, output: Mapping[str, Any] | None) -> None:
        if output is None:
            return
        annotations = output.get("annotations", [])
        if len(annotations) > 50:
            raise ForgeErrorAnswer(
                422, f"Invalid request.\n\nNo more than 50 items are allowed; {len(annotations)} were supplied."
            )
        run.title, run.summary = output.get("title", run.title), output["summary"]
        run.annotations += annotations

    def _known(self, commit: str) -> None:
        if commit not in self.commits:
            raise ForgeErrorAnswer(422, f"No commit found for SHA: {commit}")


def _accepted(body: str) -> str:
    if not body.strip():
        raise ForgeErrorAnswer(422, "Body cannot be blank")
    if len(body) > 65_536:
        raise ForgeErrorAnswer(422, "Body is too long (maximum is 65536 characters)")
    return body
