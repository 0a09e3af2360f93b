"""The port in the words of GitLab's REST API."""

import base64
import re
from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from providers.clock import Clock
from providers.forge.bounds import NotThere
from providers.forge.checks import blob_id, checked_commit, checked_number, checked_ours, checked_path, checked_url
from providers.forge.gitlab import calls
from providers.forge.gitlab.answers import (
    GitLabApprovals,
    GitLabAward,
    GitLabDeployment,
    GitLabDone,
    GitLabFile,
    GitLabGroup,
    GitLabId,
    GitLabMember,
    GitLabNote,
    GitLabNumber,
    GitLabRequest,
    GitLabReviewer,
    GitLabUser,
    standing_approvals,
)
from providers.forge.gitlab.sign_in import GitLabToken, checked_group, checked_project, checked_user
from providers.forge.port import (
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
from providers.forge.sorting import LATELY_MOST, in_order, merged_into, open_into, ours_from, still_open

if TYPE_CHECKING:
    from providers.forge.gitlab.client import GitLabClient

PUBLIC_URL: Final = "https://gitlab.com"
_STATES: Final = {Verdict.PENDING: "pending", Verdict.SUCCESS: "success", Verdict.FAILURE: "failed"}
_DEPLOYED: Final = {**_STATES, Verdict.PENDING: "running"}
_QUICK_ACTION: Final = re.compile(r"^(?=/)", re.MULTILINE)
_WORD_JOINER: Final = "\u2060"


class GitLabForge(Forge):
    """One project (`GROUP/NAME`) of a GitLab (`url`: `https://HOST`); for one thread.

    Nothing is asked more than once, and nothing waits: ForgeRateLimited and ForgeUnreachable say that it may be asked
    again. As a context manager it keeps its connections. ForgeError where project or address cannot be.
    """

    def __init__(self, project: str, sign_in: GitLabToken, *, clock: Clock, url: str = PUBLIC_URL) -> None:
        self._project = checked_project(project)
        self._url = checked_url(url, "GitLab", "https://HOST")
        self._sign_in = sign_in
        self._clock = clock
        self._branches: dict[str, str] = {}
        """Of the heads that were seen last, the branch."""

    @cached_property
    def _client(self) -> "GitLabClient":
        from providers.forge.gitlab.client import GitLabClient

        return GitLabClient(self._project, self._sign_in, self._url, self._clock)

    @cached_property
    def _ourselves(self) -> GitLabUser:
        return self._client.ask(calls.USER, GitLabUser)

    def __enter__(self) -> Self:
        self._client.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.release()

    def open_requests(self, base: str) -> Sequence[PullRequest]:
        """Returns all open requests to merge into the branch `base`, by number; none that GitLab still prepares."""
        found = self._client.look_at_all(
            calls.OPEN_REQUESTS, GitLabRequest, state="opened", target_branch=base, order_by="created_at", sort="asc"
        )
        known = [each for each in found if each.sha is not None]
        self._branches = {each.sha: each.source_branch for each in known if each.sha}
        return open_into(map(GitLabRequest.translated, known), base)

    def request(self, number: int) -> PullRequest | None:
        """Returns the request as it is now; None where there is none of this number."""
        found = self._client.look(calls.REQUEST, GitLabRequest, checked_number(number))
        if found is not None and found.iid != number:
            raise ForgeError(f"GitLab answers with the merge request {found.iid} where {number} was asked for")
        return None if found is None else found.translated()

    def merged_by(self, commit: str) -> PullRequest | None:
        """Returns the merged request whose merge commit this is, with its merger; None: the commit came another way.

        GitLab lists every request with the commit in it.
        """
        found = self._client.look_at_all(calls.REQUESTS_OF_COMMIT, GitLabRequest, checked_commit(commit))
        merged = [each.translated() for each in found if each.state == "merged"]
        fitting = [each for each in merged if each.merge_commit == commit]
        return min(fitting, key=lambda each: each.number, default=None)

    def merged_lately(self, base: str) -> Sequence[PullRequest]:
        """Returns the thirty merged requests into the branch `base` that changed last."""
        said = {"state": "merged", "target_branch": base, "order_by": "updated_at", "sort": "desc"}
        found = self._client.ask(calls.MERGED_REQUESTS, list[GitLabRequest], **said, per_page=LATELY_MOST)
        return merged_into((each.translated() for each in found if each.sha is not None), base)

    def permission(self, user: str) -> Permission:
        """Returns what a user may do in the project now; nothing where GitLab knows no such user, or no such member."""
        found = self._user(user)
        member = None if found is None else self._client.look(calls.MEMBER, GitLabMember, found.id)
        return Permission.NONE if member is None else member.translated()

    def is_member(self, user: str, team: str) -> bool:
        """Returns whether a user is in a group (by its path) now, or in one above it.

        GitLab answers 404 both of who is not in it and of a group that is not there or hidden from us.
        """
        group, found = checked_group(team), self._user(user)
        member = None if found is None else self._client.look(calls.GROUP_MEMBER, GitLabMember, group, found.id)
        if member is None:
            self._client.ask(calls.GROUP, GitLabGroup, group, with_projects="false")
            return False
        return member.translated() > Permission.NONE

    def approvals(self, number: int) -> Sequence[Approval]:
        """Returns who approves a request now: one for each user, oldest first, without a commit."""
        given = self._client.ask(calls.APPROVALS, GitLabApprovals, checked_number(number)).approved_by
        if not given:
            return ()
        reviewers = self._client.ask(calls.REVIEWERS, list[GitLabReviewer], number)  # GitLab cuts them into no pages
        notes = [] if all(each.approved_at for each in given) else self._notes(number)
        return tuple(standing_approvals(given, reviewers, notes))

    def comments(self, number: int) -> Sequence[Comment]:
        """Returns the comments of a request's conversation, oldest first."""
        return in_order(each.translated(self._ourselves) for each in self._notes(number) if not each.system)

    def write_comment(self, number: int, text: str) -> Comment:
        """Writes a further comment."""
        ourselves = self._ourselves  # before: what fails after the comment is there leads to a second one
        written = self._client.ask(calls.WRITE_NOTE, GitLabNote, checked_number(number), body=_inert(text))
        return written.translated(ourselves)

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """Gives a comment of ours another text. Those of others GitLab would let a Maintainer change as well."""
        at = checked_number(number), checked_ours(comment)
        self._client.ask(calls.CHANGE_NOTE, GitLabId, *at, body=_inert(text))

    def acknowledge(self, number: int, comment: Comment, *, accepted: bool) -> None:
        """Reacts to somebody's comment with a thumb, once: GitLab refuses a second one in words of its own."""
        at, name = (checked_number(number), checked_number(comment.id)), "thumbsup" if accepted else "thumbsdown"
        awards = self._client.look_at_all(calls.AWARDS, GitLabAward, *at)
        if (name, self._ourselves.id) not in {(each.name, each.user.id) for each in awards}:
            self._client.ask(calls.AWARD, GitLabId, *at, name=name)

    def put_status(self, commit: str, status: CommitStatus) -> None:
        """Sets a commit's status of this name, in the pipeline that GitLab finds for the commit.

        A pending status cannot be made pending again: it is cancelled first. Of a commit that is on no branch of the
        project, as of a fork's head, GitLab wants to be told one.
        """
        said = {"name": status.name, "description": status.summary}
        said |= {"target_url": status.url} if status.url else {}
        try:
            self._set_status(checked_commit(commit), status.verdict, said)
        except NotThere:
            if commit not in self._branches:
                raise
            self._set_status(commit, status.verdict, {**said, "ref": self._branches[commit]})

    def _set_status(self, commit: str, verdict: Verdict, said: dict[str, str]) -> None:
        try:
            self._client.ask(calls.SET_STATUS, GitLabId, commit, state=_STATES[verdict], **said)
        except ForgeError as error:
            if verdict is not Verdict.PENDING or "cannot transition" not in str(error).lower():
                raise
            self._client.ask(calls.SET_STATUS, GitLabId, commit, state="canceled", **said)
            self._client.ask(calls.SET_STATUS, GitLabId, commit, state=_STATES[verdict], **said)

    def put_deployment(self, deployment: Deployment) -> None:
        """Tells how far a commit has come in an environment, if the deployment that is there says something else.

        One that has failed cannot be made running again, only successful. A deployment has no words and no link of its
        own: GitLab shows the merge request and the commit. Only the last hundred of the environment are looked at.
        """
        commit, state = checked_commit(deployment.commit), _DEPLOYED[deployment.verdict]
        listed = self._client.ask(
            calls.DEPLOYMENTS,
            list[GitLabDeployment],
            environment=deployment.environment,
            order_by="id",
            sort="desc",
            per_page=100,
        )
        found = next((it for it in listed if it.sha == commit), None)
        if found is None:
            told: dict[str, str | int] = {"environment": deployment.environment, "sha": commit, "status": state}
            self._client.ask(calls.DEPLOY, GitLabId, **told, ref=deployment.branch, tag=False)
        elif found.status != state and deployment.verdict is not Verdict.PENDING:
            self._client.ask(calls.CHANGE_DEPLOYMENT, GitLabId, found.id, status=state)

    def requests_from(self, branch: str) -> Sequence[PullRequest]:
        """Returns the requests from a branch of the project itself, whatever became of them, by number."""
        found = self._client.look_at_all(calls.REQUESTS_FROM, GitLabRequest, state="all", source_branch=branch)
        return ours_from((each.translated() for each in found if each.sha is not None), branch)

    def propose(self, change: ProposedChange) -> int:
        """Opens a request. The branch comes to be with its commit; GitLab deletes it when it is merged."""
        path, branch = checked_path(change.path), change.branch
        held = self._client.look(calls.FILE, GitLabFile, path, ref=branch)
        if held is None or held.blob_id != blob_id(change.content, held.blob_id):
            text = base64.b64encode(change.content).decode()
            action = {"action": "update", "file_path": path, "content": text, "encoding": "base64"}
            start = {"start_sha": checked_commit(change.base_commit)} if held is None else {}
            said = {"branch": branch, "commit_message": change.title, **start}
            self._client.ask(calls.COMMIT_FILE, GitLabDone, actions=[action], **said)
        if opened := still_open(self.requests_from(branch)):
            return opened
        said = {"source_branch": branch, "target_branch": change.base, "title": change.title}
        words = _inert(change.words)
        return self._client.ask(calls.PROPOSE, GitLabNumber, **said, description=words, remove_source_branch=True).iid

    def close_request(self, number: int) -> None:
        """Closes a request without merging it."""
        self._client.ask(calls.CLOSE, GitLabNumber, checked_number(number), state_event="close")

    def _notes(self, number: int) -> list[GitLabNote]:
        return self._client.look_at_all(
            calls.NOTES, GitLabNote, checked_number(number), sort="asc", order_by="created_at"
        )

    def _user(self, name: str) -> GitLabUser | None:
        """Returns a user by name; GitLab compares names without case."""
        found = self._client.look_at_all(calls.USERS, GitLabUser, username=checked_user(name))
        return next((each for each in found if each.username.casefold() == name.casefold()), None)


def _inert(text: str) -> str:
    """Returns a text of which GitLab carries out no line: one that begins with a slash is a quick action to it.

    A sign without width goes before the slash; whoever reads the comment sees none.
    """
    return _QUICK_ACTION.sub(_WORD_JOINER, text)
