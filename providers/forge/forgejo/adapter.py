"""The port in the words of the REST API of Forgejo and Gitea."""

import base64
from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from providers.clock import Clock
from providers.forge.checks import blob_id, checked_commit, checked_number, checked_ours, checked_path, checked_url
from providers.forge.forgejo import calls
from providers.forge.forgejo.answers import (
    ForgejoComment,
    ForgejoDone,
    ForgejoFile,
    ForgejoNumber,
    ForgejoPermission,
    ForgejoRequest,
    ForgejoReview,
    ForgejoTeams,
    ForgejoUser,
    given_reviews,
)
from providers.forge.forgejo.sign_in import ForgejoToken, checked_pair, checked_user
from providers.forge.port import (
    Approval,
    Comment,
    CommitStatus,
    Deployment,
    Forge,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    Permission,
    ProposedChange,
    PullRequest,
    Verdict,
)
from providers.forge.sorting import LATELY_MOST, in_order, merged_into, open_into, ours_from, standing, still_open

if TYPE_CHECKING:
    from providers.forge.forgejo.client import ForgejoClient

_STATES: Final = {Verdict.PENDING: "pending", Verdict.SUCCESS: "success", Verdict.FAILURE: "failure"}


class ForgejoForge(Forge):
    """One repository (`OWNER/NAME`) of a Forgejo or Gitea (`url`: `https://HOST`); for one thread.

    Nothing is asked more than once, and nothing waits: ForgeRateLimited and ForgeUnreachable say that it may be asked
    again. As a context manager it keeps its connections; otherwise each question has its own. ForgeError where
    repository or address cannot be.
    """

    def __init__(self, repository: str, sign_in: ForgejoToken, *, clock: Clock, url: str) -> None:
        self._repository = checked_pair("a repository on Forgejo is written OWNER/NAME", repository)
        self._url = checked_url(url, "Forgejo", "https://HOST").rstrip("/") + "/api/v1"
        self._sign_in = sign_in
        self._clock = clock

    @cached_property
    def _client(self) -> "ForgejoClient":
        from providers.forge.forgejo.client import ForgejoClient

        return ForgejoClient(self._repository, self._sign_in, self._url, self._clock)

    @cached_property
    def _ourselves(self) -> ForgejoUser:
        return self._client.ask(calls.USER, ForgejoUser)

    def __enter__(self) -> Self:
        self._client.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.release()

    def open_requests(self, base: str) -> Sequence[PullRequest]:
        """Returns all open requests to merge into the branch `base`, by number."""
        # By creation, so that one that is opened meanwhile comes last.
        pages = self._client.look_at_all(calls.OPEN_REQUESTS, list[ForgejoRequest], state="open", sort="oldest")
        return open_into((each.translated() for page in pages for each in page), base)

    def request(self, number: int) -> PullRequest | None:
        """Returns the request as it is now; None where there is none of this number."""
        found = self._client.look(calls.REQUEST, ForgejoRequest, checked_number(number))
        if found is not None and found.number != number:
            raise ForgeError(f"Forgejo answers with the pull request {found.number} where {number} was asked for")
        return None if found is None else found.translated()

    def merged_by(self, commit: str) -> PullRequest | None:
        """Returns the merged request whose merge commit this is, with its merger; None: the commit came another way."""
        found = self._client.look(calls.REQUEST_OF_COMMIT, ForgejoRequest, checked_commit(commit))
        request = None if found is None else found.translated()
        return request if request is not None and request.merge_commit == commit else None

    def merged_lately(self, base: str) -> Sequence[PullRequest]:
        """Returns merged requests into the branch `base`, of the thirty closed ones that changed last."""
        said = {"state": "closed", "sort": "recentupdate", "limit": LATELY_MOST}
        found = self._client.ask(calls.CLOSED_REQUESTS, list[ForgejoRequest], **said)
        return merged_into((each.translated() for each in found), base)

    def permission(self, user: str) -> Permission:
        """Returns what a user may do in the repository now; nothing where Forgejo knows no such user."""
        found = self._client.look(calls.PERMISSION, ForgejoPermission, checked_user(user))
        return Permission.NONE if found is None else found.translated()

    def is_member(self, user: str, team: str) -> bool:
        """Returns whether a user is in a team (`ORGANIZATION/TEAM`, names without case) now."""
        organization, name = checked_pair("a team on Forgejo is written ORGANIZATION/TEAM", team)
        login = checked_user(user)
        pages = self._client.look_at_all(calls.TEAMS, ForgejoTeams, organization, q=name)
        found = [each for page in pages for each in page.data or () if each.name.casefold() == name.casefold()]
        if not found:
            raise ForgeError(
                f"Forgejo shows us no team {team}: it is not there, or hidden. This takes {calls.TEAMS.needs}"
            )
        return self._client.look(calls.TEAM_MEMBER, ForgejoUser, found[0].id, login) is not None

    def approvals(self, number: int) -> Sequence[Approval]:
        """Returns who approves a request now: one for each user, oldest first."""
        pages = self._client.look_at_all(calls.REVIEWS, list[ForgejoReview], checked_number(number))
        return standing(given_reviews([each for page in pages for each in page]))

    def comments(self, number: int) -> Sequence[Comment]:
        """Returns the comments of a request's conversation, oldest first. Forgejo gives them all at once."""
        found = self._client.ask(calls.COMMENTS, list[ForgejoComment], checked_number(number))
        return in_order(each.translated(self._ourselves) for each in found)

    def write_comment(self, number: int, text: str) -> Comment:
        """Writes a further comment."""
        ourselves = self._ourselves  # before: what fails after the comment is there leads to a second one
        written = self._client.ask(calls.WRITE_COMMENT, ForgejoComment, checked_number(number), body=text)
        return written.translated(ourselves)

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """Gives a comment of ours another text. Those of others Forgejo would let an administrator change as well."""
        self._client.ask(calls.CHANGE_COMMENT, ForgejoDone, checked_ours(comment), body=text)

    def acknowledge(self, number: int, comment: Comment, *, accepted: bool) -> None:
        """Reacts to somebody's comment: with a thumb up where what it asks for is done, else with a thumb down."""
        content = "+1" if accepted else "-1"
        self._client.ask(calls.REACT, ForgejoDone, checked_number(comment.id), content=content)

    def put_status(self, commit: str, status: CommitStatus) -> None:
        """Sets a commit's status of this name. Of a commit that is not there Forgejo says that it is broken itself."""
        checked_commit(commit)
        link = {"target_url": status.url} if status.url else {}
        said = {"state": _STATES[status.verdict], "context": status.name, "description": status.summary, **link}
        try:
            self._client.ask(calls.SET_STATUS, ForgejoDone, commit, **said)
        except ForgeRateLimited:
            raise
        except ForgeUnreachable:
            if self._client.look(calls.COMMIT, ForgejoDone, commit) is None:
                raise ForgeError(f"there is no commit {commit} in the repository on Forgejo") from None
            raise

    def put_deployment(self, deployment: Deployment) -> None:
        """Does nothing: Forgejo and Gitea have no deployments."""

    def requests_from(self, branch: str) -> Sequence[PullRequest]:
        """Returns the requests from a branch of the repository itself, of the fifty that were changed last, by number.

        Forgejo does not list those of a branch, and to read all there ever were would take longer with each.
        """
        found = self._client.ask(calls.OPEN_REQUESTS, list[ForgejoRequest], state="all", sort="recentupdate", limit=50)
        return ours_from((each.translated() for each in found), branch)

    def propose(self, change: ProposedChange) -> int:
        """Opens a request. The branch comes to be with its commit, from the base, where the file is as it was."""
        path, branch = checked_path(change.path), change.branch
        held = self._client.look(calls.FILE, ForgejoFile, path, ref=branch)
        more = {"branch": branch} if held else {"branch": change.base, "new_branch": branch}
        before = held or self._client.ask(calls.FILE, ForgejoFile, path, ref=checked_commit(change.base_commit))
        if before.sha != blob_id(change.content, before.sha):
            text = base64.b64encode(change.content).decode()
            said = {"content": text, "sha": before.sha, "message": change.title, **more}
            self._client.ask(calls.COMMIT_FILE, ForgejoDone, path, **said)
        if opened := still_open(self.requests_from(branch)):
            return opened
        said = {"head": branch, "base": change.base, "title": change.title, "body": change.words}
        return self._client.ask(calls.PROPOSE, ForgejoNumber, **said).number

    def close_request(self, number: int) -> None:
        """Closes a request without merging it."""
        self._client.ask(calls.CLOSE, ForgejoNumber, checked_number(number), state="closed")
