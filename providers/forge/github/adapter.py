"""The port in the words of GitHub's REST API."""

import base64
from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from providers.clock import Clock
from providers.forge.checks import blob_id, checked_commit, checked_number, checked_ours, checked_path, checked_url
from providers.forge.github import calls
from providers.forge.github.answers import (
    GitHubComment,
    GitHubDeploymentState,
    GitHubDone,
    GitHubFile,
    GitHubId,
    GitHubMembership,
    GitHubNumber,
    GitHubPermission,
    GitHubRequest,
    GitHubReview,
    GitHubSlug,
    GitHubUser,
    given_reviews,
)
from providers.forge.github.sign_in import (
    GitHubApp,
    GitHubRepository,
    GitHubToken,
    checked_login,
    checked_team,
)
from providers.forge.port import (
    Annotation,
    Approval,
    Comment,
    CommitStatus,
    Deployment,
    Forge,
    ForgeError,
    Permission,
    ProposedChange,
    PullRequest,
    Verdict,
)
from providers.forge.sorting import LATELY_MOST, in_order, merged_into, open_into, ours_from, standing, still_open

if TYPE_CHECKING:
    from providers.forge.github.client import GitHubClient

PUBLIC_URL: Final = "https://api.github.com"
MOST_ANNOTATIONS: Final = 50
"""How many annotations a request may bring; more come by further requests (docs.github.com/rest/checks/runs)."""
_LONGEST_ANNOTATION: Final = 4096
_STATES: Final = {Verdict.PENDING: "pending", Verdict.SUCCESS: "success", Verdict.FAILURE: "failure"}

_DEPLOYED: Final = {**_STATES, Verdict.PENDING: "in_progress"}


class GitHubForge(Forge):
    """One repository (`OWNER/NAME`) on GitHub or an Enterprise Server (`url`: `https://HOST/api/v3`); for one thread.

    Nothing is asked more than once, and nothing waits: ForgeRateLimited and ForgeUnreachable say that it may be asked
    again. As a context manager it keeps its connections for the thread that entered; otherwise each question has its
    own. ForgeError where repository or address cannot be.
    """

    def __init__(
        self, repository: str, sign_in: GitHubToken | GitHubApp, *, clock: Clock, url: str = PUBLIC_URL
    ) -> None:
        self._repository = GitHubRepository.of(repository)
        self._url = checked_url(url, "GitHub", "https://HOST/api/v3")
        self._sign_in = sign_in
        self._clock = clock

    @cached_property
    def _client(self) -> "GitHubClient":
        from providers.forge.github.client import GitHubClient

        return GitHubClient(self._repository, self._sign_in, self._url, self._clock)

    @cached_property
    def _ourselves(self) -> GitHubUser | GitHubSlug:
        if isinstance(self._sign_in, GitHubApp):
            return self._client.ask(calls.APP, GitHubSlug)
        return self._client.ask(calls.USER, GitHubUser)

    def __enter__(self) -> Self:
        self._client.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.release()

    def open_requests(self, base: str) -> Sequence[PullRequest]:
        """Returns all open requests to merge into the branch `base`, by number."""
        # By creation, so that one that is opened meanwhile comes last; one that is closed meanwhile moves the others
        # up, and the one that slips by is seen the next time.
        found = self._client.look_at_all(
            calls.OPEN_REQUESTS, GitHubRequest, state="open", base=base, sort="created", direction="asc"
        )
        return open_into(map(GitHubRequest.translated, found), base)

    def request(self, number: int) -> PullRequest | None:
        """Returns the request as it is now; None where there is none of this number."""
        found = self._client.look(calls.REQUEST, GitHubRequest, checked_number(number))
        if found is not None and found.number != number:
            raise ForgeError(f"GitHub answers with the pull request {found.number} where {number} was asked for")
        return None if found is None else found.translated()

    def merged_by(self, commit: str) -> PullRequest | None:
        """Returns the merged request whose merge commit this is, with its merger; None: the commit came another way.

        GitHub lists every request with the commit in it, and of those that are open the commit of a trial merge. Who
        merged one is not in the list.
        """
        found = self._client.look_at_all(calls.REQUESTS_OF_COMMIT, GitHubRequest, checked_commit(commit))
        merged = [each for each in map(GitHubRequest.translated, found) if each.merge_commit == commit]
        request = min(merged, key=lambda each: each.number, default=None)
        return request and (self.request(request.number) or request)

    def merged_lately(self, base: str) -> Sequence[PullRequest]:
        """Returns merged requests into the branch `base`, of the thirty closed ones that changed last."""
        said = {"state": "closed", "base": base, "sort": "updated", "direction": "desc", "per_page": LATELY_MOST}
        found = self._client.look(calls.CLOSED_REQUESTS, list[GitHubRequest], **said)
        return merged_into(map(GitHubRequest.translated, found or ()), base)

    def permission(self, user: str) -> Permission:
        """Returns what a user may do in the repository now; nothing where GitHub knows no such user."""
        found = self._client.look(calls.PERMISSION, GitHubPermission, checked_login(user))
        return Permission.NONE if found is None else found.translated()

    def is_member(self, user: str, team: str) -> bool:
        """Returns whether a user is in a team (`ORGANIZATION/SLUG`) now, or in one below it.

        GitHub answers 404 both of who is not in it and of a team that is not there or hidden from us.
        """
        organization, slug = checked_team(team)
        found = self._client.look(calls.MEMBERSHIP, GitHubMembership, organization, slug, checked_login(user))
        if found is None:
            self._client.ask(calls.TEAM, GitHubId, organization, slug)
        return found is not None and found.state == "active"

    def approvals(self, number: int) -> Sequence[Approval]:
        """Returns who approves a request now: one for each user, oldest first."""
        found = self._client.look_at_all(calls.REVIEWS, GitHubReview, checked_number(number))
        return standing(given_reviews(found))

    def comments(self, number: int) -> Sequence[Comment]:
        """Returns the comments of a request's conversation, oldest first."""
        found = self._client.look_at_all(calls.COMMENTS, GitHubComment, checked_number(number))
        return in_order(each.translated(self._ourselves) for each in found)

    def write_comment(self, number: int, text: str) -> Comment:
        """Writes a further comment."""
        ourselves = self._ourselves  # before: what fails after the comment is there leads to a second one
        written = self._client.ask(calls.WRITE_COMMENT, GitHubComment, checked_number(number), body=text)
        return written.translated(ourselves)

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """Gives a comment of ours another text. Those of others GitHub would let us change as well."""
        self._client.ask(calls.CHANGE_COMMENT, GitHubId, checked_ours(comment), body=text)

    def acknowledge(self, number: int, comment: Comment, *, accepted: bool) -> None:
        """Reacts to somebody's comment: with a thumb up where what it asks for is done, else with a thumb down."""
        self._client.ask(calls.REACT, GitHubId, checked_number(comment.id), content="+1" if accepted else "-1")

    def put_status(self, commit: str, status: CommitStatus) -> None:
        """Sets a commit's status of this name: an App by a check run with annotations, a token by a commit status.

        A check run is always a new one, which GitHub shows in the place of the one before: annotations can be added
        to one that stands and not be taken from it.
        """
        checked_commit(commit)
        if isinstance(self._sign_in, GitHubApp):
            self._make_check_run(commit, status)
            return
        link = {"target_url": status.url} if status.url else {}
        self._client.ask(
            calls.SET_STATUS,
            GitHubId,
            commit,
            state=_STATES[status.verdict],
            context=status.name,
            description=status.summary,
            **link,
        )

    def put_deployment(self, deployment: Deployment) -> None:
        """Tells how far a commit has come in an environment, if the last status that is there says something else.

        No check of the commit is waited for, and nothing is merged into it: it is in force already.
        """
        commit, environment = checked_commit(deployment.commit), deployment.environment
        found = self._client.look_at_all(calls.DEPLOYMENTS, GitHubId, sha=commit, environment=environment)
        at = max((it.id for it in found), default=0)
        if not at:
            made: dict[str, Any] = {"ref": commit, "environment": environment, "auto_merge": False}
            more = {"required_contexts": [], "description": "The revision of the fleet"}
            at = self._client.ask(calls.DEPLOY, GitHubId, **made, **more).id
        said = self._client.look_at_all(calls.DEPLOYMENT_STATUSES, GitHubDeploymentState, at)
        state = _DEPLOYED[deployment.verdict]
        if (max(said, key=lambda it: it.id).state if said else "") != state:
            link = {"log_url": deployment.url} if deployment.url else {}
            self._client.ask(calls.TELL_DEPLOYMENT, GitHubId, at, state=state, description=deployment.summary, **link)

    def requests_from(self, branch: str) -> Sequence[PullRequest]:
        """Returns the requests from a branch of the repository itself, whatever became of them, by number."""
        head = f"{self._repository.owner}:{branch}"
        found = self._client.look_at_all(calls.REQUESTS_FROM, GitHubRequest, state="all", head=head)
        return ours_from(map(GitHubRequest.translated, found), branch)

    def propose(self, change: ProposedChange) -> int:
        """Opens a request; GitHub signs the commit. The branch, the file and the request are three steps of it."""
        path, branch = checked_path(change.path), change.branch
        held = self._client.look(calls.FILE, GitHubFile, path, ref=f"refs/heads/{branch}")
        if held is None:
            at = checked_commit(change.base_commit)
            self._client.ask(calls.MAKE_BRANCH, GitHubDone, ref=f"refs/heads/{branch}", sha=at)
            held = self._client.ask(calls.FILE, GitHubFile, path, ref=f"refs/heads/{branch}")
        if held.sha != blob_id(change.content, held.sha):
            text = base64.b64encode(change.content).decode()
            more = {"message": change.title, "content": text, "sha": held.sha, "branch": branch}
            self._client.ask(calls.WRITE_FILE, GitHubDone, path, **more)
        if opened := still_open(self.requests_from(branch)):
            return opened
        said = {"title": change.title, "head": branch, "base": change.base, "body": change.words}
        return self._client.ask(calls.PROPOSE, GitHubNumber, **said).number

    def close_request(self, number: int) -> None:
        """Closes a request without merging it."""
        self._client.ask(calls.CLOSE, GitHubNumber, checked_number(number), state="closed")

    def _make_check_run(self, commit: str, status: CommitStatus) -> None:
        first, *others = _outputs(status)
        link = {"details_url": status.url} if status.url else {}
        run = self._client.ask(
            calls.START_CHECK, GitHubId, head_sha=commit, name=status.name, output=first, **_standing(status), **link
        )
        for output in others:
            self._client.ask(calls.CHANGE_CHECK, GitHubId, run.id, output=output)


def _standing(status: CommitStatus) -> dict[str, str]:
    if status.verdict is Verdict.PENDING:
        return {"status": "in_progress"}
    return {"status": "completed", "conclusion": _STATES[status.verdict]}


def _outputs(status: CommitStatus) -> list[dict[str, Any]]:
    """Returns what a check run says, in as many parts as its annotations take."""
    firsts = range(0, max(1, len(status.annotations)), MOST_ANNOTATIONS)
    return [
        {
            "title": status.summary,
            "summary": status.summary,
            "annotations": [_annotation(each) for each in status.annotations[first : first + MOST_ANNOTATIONS]],
        }
        for first in firsts
    ]


def _annotation(annotation: Annotation) -> dict[str, Any]:
    return {
        "path": annotation.path,
        "start_line": annotation.line,
        "end_line": annotation.line,
        "annotation_level": "failure",
        "message": annotation.message[:_LONGEST_ANNOTATION],
    }
