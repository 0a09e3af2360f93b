"""The state as GitLab's REST API tells and takes it (version 4)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar, Final

from providers.sim.forge.dialect import (
    Document,
    ForgeAnswer,
    ForgeAsked,
    ForgeDialect,
    ForgeQuestion,
    PageRule,
    Rules,
)
from providers.sim.forge.state import (
    ForgeAccount,
    ForgeErrorAnswer,
    ForgeState,
    StoredComment,
    StoredDeployment,
    StoredRequest,
    StoredReview,
    StoredStatus,
)

_LEVELS: Final = {"admin": 40, "maintain": 40, "write": 30, "triage": 20, "read": 10}
_REVIEWS: Final = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "requested_changes",
    "COMMENTED": "reviewed",
    "DISMISSED": "unreviewed",
}
_GHOST: Final = ForgeAccount(3, "ghost1")
_QUICK_ACTION: Final = re.compile(r"^/\w+.*\n?", re.MULTILINE)


def stamp(at_s: float) -> str:
    """Returns a time as GitLab writes it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class GitLabDocuments:
    """Writes the state as answers of a server whose pages are at `web`."""

    def __init__(self, state: ForgeState, web: str) -> None:
        self._state = state
        self._web = web
        self._page = f"{web}/{state.owner.login}/{state.name}"

    def user(self, account: ForgeAccount | None) -> Document:
        """A user as others see them."""
        account = account or _GHOST
        return {
            "id": account.id,
            "username": account.login,
            "name": account.login,
            "state": "active",
            "locked": False,
            "avatar_url": f"{self._web}/avatars/{account.id}",
            "web_url": f"{self._web}/{account.login}",
        }

    def member(self, account: ForgeAccount, level: int, state: str = "active") -> Document:
        """A member of a project or group."""
        told = {"access_level": level, "created_at": stamp(0), "expires_at": None, "membership_state": "active"}
        return {**self.user(account), **told, "state": state}

    def group(self, path: str) -> Document:
        """A group."""
        return {
            "id": 7000 + len(path),
            "web_url": f"{self._web}/groups/{path}",
            "name": path.rpartition("/")[2],
            "avatar_url": None,
            "full_name": path.replace("/", " / "),
            "full_path": path,
        }

    def request(self, request: StoredRequest, *, whole: bool) -> Document:
        """A merge request of a list, or alone."""
        is_merged, number = request.merged_at_s is not None, request.number
        state = "merged" if is_merged else "opened" if request.closed_at_s is None else "closed"
        fork = {None: self._state.id, 0: None}.get(request.fork, request.fork)
        at = f"!{number}"
        document: Document = {
            **dict.fromkeys(("merged_by", "closed_by", "assignee", "milestone", "discussion_locked")),
            **dict.fromkeys(
                ("should_remove_source_branch", "squash_commit_sha", "description", "approvals_before_merge")
            ),
            **dict.fromkeys(("user_notes_count", "upvotes", "downvotes"), 0),
            **dict.fromkeys(("draft", "work_in_progress", "merge_when_pipeline_succeeds", "squash"), False),
            "id": 10_000 + number,
            "iid": number,
            "project_id": self._state.id,
            "title": request.title,
            "state": state,
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "prepared_at": stamp(request.created_at_s),
            "merged_at": _stamp_or_none(request.merged_at_s),
            "closed_at": None if is_merged else _stamp_or_none(request.closed_at_s),
            "target_branch": request.base,
            "source_branch": request.head_branch,
            "author": self.user(request.author),
            "assignees": [],
            "reviewers": [],
            "source_project_id": fork,
            "target_project_id": self._state.id,
            "labels": [],
            "merge_status": "can_be_merged",
            "detailed_merge_status": "not_open" if request.closed_at_s else "mergeable",
            "sha": request.head,
            "merge_commit_sha": request.merge_commit if is_merged else None,
            "force_remove_source_branch": False,
            "reference": at,
            "references": {"short": at, "relative": at, "full": f"{self._state.owner.login}/{self._state.name}{at}"},
            "web_url": f"{self._page}/-/merge_requests/{number}",
            "time_stats": {
                "time_estimate": 0,
                "total_time_spent": 0,
                "human_time_estimate": None,
                "human_total_time_spent": None,
            },
            "task_completion_status": {"count": 0, "completed_count": 0},
            "has_conflicts": False,
            "blocking_discussions_resolved": True,
        }
        return {**document, **self._more(request)} if whole else document

    def approvals(self, request: StoredRequest, given: Mapping[int, StoredReview]) -> Document:
        """Who approves a merge request, with since when, as GitLab tells since 17."""
        approved = [
            {"user": self.user(review.author), "approved_at": stamp(review.submitted_at_s)} for review in given.values()
        ]
        return {
            "id": 10_000 + request.number,
            "iid": request.number,
            "project_id": self._state.id,
            "title": request.title,
            "description": "",
            "state": "opened",
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "merge_status": "can_be_merged",
            "approvals_required": 0,
            "approvals_left": 0,
            "approved_by": approved,
        }

    def reviewer(self, review: StoredReview) -> Document:
        """Somebody who gave a review."""
        at = stamp(review.submitted_at_s)
        return {"user": self.user(review.author), "state": _REVIEWS[review.state], "created_at": at}

    def note(self, comment: StoredComment, *, system: bool = False) -> Document:
        """A note."""
        return {
            "id": comment.id,
            "type": None,
            "body": comment.body,
            "attachment": None,
            "author": self.user(comment.author),
            "created_at": stamp(comment.created_at_s),
            "updated_at": stamp(comment.updated_at_s),
            "system": system,
            "noteable_id": 10_000 + comment.number,
            "noteable_type": "MergeRequest",
            "noteable_iid": comment.number,
            "project_id": self._state.id,
            "resolvable": False,
        }

    def award(self, comment: StoredComment, account: ForgeAccount, name: str, number: int) -> Document:
        """A reaction."""
        at = stamp(self._state.clock.now())
        return {
            "id": number,
            "name": name,
            "user": {**self.user(account), "created_at": stamp(0)},
            "created_at": at,
            "updated_at": at,
            "awardable_id": comment.id,
            "awardable_type": "Note",
        }

    def status(self, status: StoredStatus, ref: str) -> Document:
        """A commit status."""
        return {
            "id": status.id,
            "sha": status.commit,
            "ref": ref,
            "status": status.state,
            "name": status.context,
            "target_url": status.target_url,
            "description": status.description,
            "created_at": stamp(status.created_at_s),
            "started_at": None,
            "finished_at": None,
            "allow_failure": False,
            "author": self.user(status.creator),
        }

    def deployment(self, made: StoredDeployment) -> Document:
        """A deployment by the API, which is no job's."""
        at, (number, state, _, _) = stamp(made.created_at_s), made.statuses[-1]
        environment = {"id": made.id, "name": made.environment, "slug": "slug", "external_url": None}
        return {
            "id": made.id,
            "iid": number,
            "ref": "main",
            "sha": made.commit,
            "created_at": at,
            "updated_at": at,
            "status": state,
            "user": self.user(made.creator),
            "deployable": None,
            "environment": {**environment, "created_at": at, "updated_at": at},
        }

    def _more(self, request: StoredRequest) -> Document:
        nothing = ("latest_build_started_at", "latest_build_finished_at", "first_deployed_to_production_at")
        return {
            **dict.fromkeys((*nothing, "pipeline", "head_pipeline", "merge_error")),
            "subscribed": False,
            "changes_count": "1",
            "diff_refs": {"base_sha": request.base_commit, "head_sha": request.head, "start_sha": request.base_commit},
            "first_contribution": False,
            "user": {"can_merge": True},
        }


GitLabQuestion = ForgeQuestion[GitLabDocuments]


def _user(asked: GitLabQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, {**asked.documents.user(asked.asker), "created_at": stamp(0)})


def _users(asked: GitLabQuestion) -> ForgeAnswer:
    wanted = asked.query["username"].lower()
    return ForgeAnswer(
        200, [asked.documents.user(each) for each in asked.state.accounts.values() if each.login.lower() == wanted]
    )


def _group(asked: GitLabQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.group(_stored_group(asked)))


def _group_member(asked: GitLabQuestion) -> ForgeAnswer:
    group, account = _stored_group(asked), _account(asked)
    if account.login not in asked.state.teams[group]:
        raise ForgeErrorAnswer(404, "404 Not found")
    is_active = asked.state.teams[group][account.login] == "active"
    return ForgeAnswer(200, asked.documents.member(account, 30, "active" if is_active else "awaiting"))


def _member(asked: GitLabQuestion) -> ForgeAnswer:
    account = _account(asked)
    role = asked.state.roles.get(account.login, "none")
    if role == "none":
        raise ForgeErrorAnswer(404, "404 Not found")
    return ForgeAnswer(200, asked.documents.member(account, _LEVELS[role]))


def _requests(asked: GitLabQuestion) -> ForgeAnswer:
    documents = [asked.documents.request(each, whole=False) for each in asked.state.requests.values()]
    state, base = asked.query.get("state", "all"), asked.query.get("target_branch")
    found = [each for each in documents if state in {"all", each["state"]} and base in {None, each["target_branch"]}]
    by = asked.query.get("order_by", "created_at")
    found.sort(key=lambda each: (each[by], each["iid"]), reverse=asked.query.get("sort", "desc") == "desc")
    return ForgeAnswer(200, found)


def _request(asked: GitLabQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.request(asked.request(), whole=True))


def _requests_of_commit(asked: GitLabQuestion) -> ForgeAnswer:
    commit = asked.path["commit"]
    if commit not in asked.state.commits:
        raise ForgeErrorAnswer(404, "404 Commit Not Found")
    found = [
        each
        for each in asked.state.requests.values()
        if commit == each.head or (each.merged_at_s is not None and commit == each.merge_commit)
    ]
    return ForgeAnswer(200, [asked.documents.request(each, whole=False) for each in found])


def _approvals(asked: GitLabQuestion) -> ForgeAnswer:
    """To ask for changes leaves an approval where it is."""
    request = asked.request()
    given = {
        each.author.id: each
        for each in asked.state.reviews.values()
        if each.number == request.number and each.state == "APPROVED" and each.author is not None
    }
    return ForgeAnswer(200, asked.documents.approvals(request, given))


def _reviewers(asked: GitLabQuestion) -> ForgeAnswer:
    number = asked.request().number
    last = {each.author: each for each in asked.state.reviews.values() if each.number == number}
    return ForgeAnswer(200, [asked.documents.reviewer(each) for each in last.values()])


def _notes(asked: GitLabQuestion) -> ForgeAnswer:
    number = asked.request().number
    system = [
        StoredComment(it.id, number, it.author, "approved this merge request", it.submitted_at_s, it.submitted_at_s)
        for it in asked.state.reviews.values()
        if it.number == number and it.state in {"APPROVED", "DISMISSED"}
    ]
    found = [asked.documents.note(each, system=True) for each in system]
    found += [asked.documents.note(each) for each in asked.state.comments.values() if each.number == number]
    is_last_first = asked.query.get("sort", "desc") == "desc"
    return ForgeAnswer(200, sorted(found, key=lambda each: (each["created_at"], each["id"]), reverse=is_last_first))


def _write_note(asked: GitLabQuestion) -> ForgeAnswer:
    """Lines that begin with a slash are carried out, and are no words of the note."""
    body = _QUICK_ACTION.sub("", asked.body["body"])
    comment = asked.state.comment(asked.request().number, asked.asker, body)
    return ForgeAnswer(201, asked.documents.note(comment))


def _change_note(asked: GitLabQuestion) -> ForgeAnswer:
    comment = _stored_note(asked)
    asked.state.change(comment, _QUICK_ACTION.sub("", asked.body["body"]))
    return ForgeAnswer(200, asked.documents.note(comment))


def _awards(asked: GitLabQuestion) -> ForgeAnswer:
    comment = _stored_note(asked)
    accounts = {each.id: each for each in asked.state.accounts.values()}
    found = comment.reactions.items()
    return ForgeAnswer(200, [asked.documents.award(comment, accounts[who], name, id_) for (who, name), id_ in found])


def _award(asked: GitLabQuestion) -> ForgeAnswer:
    comment, name = _stored_note(asked), asked.body["name"]
    number, is_new = asked.state.react(comment, asked.asker, name)
    if not is_new:
        raise ForgeErrorAnswer(404, "404 Award Emoji Name has already been taken Not Found")
    return ForgeAnswer(201, asked.documents.award(comment, asked.asker, name, number))


def _set_status(asked: GitLabQuestion) -> ForgeAnswer:
    """Sets a status in a pipeline of the commit, which is of a branch: of one that has it, or of the one given."""
    commit, said, state = asked.path["commit"], asked.body, asked.state
    if commit not in state.commits:
        raise ForgeErrorAnswer(404, "404 Commit Not Found")
    if "ref" not in said and _is_on_a_fork_alone(state, commit):
        raise ForgeErrorAnswer(404, "404 References for commit Not Found")
    standing = state.latest_statuses(commit).get(said["name"])
    if said["state"] == "pending" and standing is not None and standing.state == "pending":
        raise ForgeErrorAnswer(
            400,
            'Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")',
        )
    status = state.state_of(commit, asked.asker, {**said, "context": said["name"]})
    return ForgeAnswer(201, asked.documents.status(status, said.get("ref", "main")))


def _deployments(asked: GitLabQuestion) -> ForgeAnswer:
    wanted = asked.query.get("environment")
    found = [it for it in asked.state.deployments.values() if wanted in {None, it.environment}]
    found.sort(key=lambda it: it.id, reverse=asked.query.get("sort", "asc") == "desc")
    return ForgeAnswer(200, [asked.documents.deployment(it) for it in found])


def _deploy(asked: GitLabQuestion) -> ForgeAnswer:
    said = asked.body
    if said["sha"] not in asked.state.commits:
        raise ForgeErrorAnswer(400, "The commit does not exist")
    made = asked.state.deploy(said["sha"], said["environment"], asked.asker)
    asked.state.tell_deployment(made, said["status"])
    return ForgeAnswer(201, asked.documents.deployment(made))


def _change_deployment(asked: GitLabQuestion) -> ForgeAnswer:
    """Changes a status where the state machine of GitLab's `Deployment` does: nothing that has ended runs again."""
    made, state = asked.state.deployments.get(asked.number("deployment")), asked.body["status"]
    if made is None:
        raise ForgeErrorAnswer(404, "404 Deployment Not Found")
    if made.statuses[-1][1] == state or state == "running":
        raise ForgeErrorAnswer(400, f"Cannot transition status to {state}")
    asked.state.tell_deployment(made, state)
    return ForgeAnswer(200, asked.documents.deployment(made))


def _is_on_a_fork_alone(state: ForgeState, commit: str) -> bool:
    of = [each for each in state.requests.values() if commit in {each.head, each.merge_commit}]
    return bool(of) and all(each.head == commit and each.fork is not None for each in of)


def _account(asked: GitLabQuestion) -> ForgeAccount:
    number = asked.number("user")
    found = next((each for each in asked.state.accounts.values() if each.id == number), None)
    if found is None:
        raise ForgeErrorAnswer(404, "404 User Not Found")
    return found


def _stored_group(asked: GitLabQuestion) -> str:
    if asked.path["group"] not in asked.state.teams:
        raise ForgeErrorAnswer(404, "404 Group Not Found")
    return asked.path["group"]


def _stored_note(asked: GitLabQuestion) -> StoredComment:
    comment = asked.comment()
    if comment.number != asked.request().number:
        raise ForgeErrorAnswer(404, "404 Not found")
    return comment


def _stamp_or_none(at_s: float | None) -> str | None:
    return None if at_s is None else stamp(at_s)


_PROJECT: Final = r"/projects/(?P<project>[^/]+)"
_REQUEST: Final = rf"{_PROJECT}/merge_requests/(?P<number>\d+)"
_NOTE: Final = rf"{_REQUEST}/notes/(?P<comment>\d+)"
_GROUP: Final = r"/groups/(?P<group>[^/]+)"
_MEMBER: Final = r"members/all/(?P<user>\d+)"


class GitLabDialect(ForgeDialect[GitLabDocuments]):
    """GitLab's REST API, below `/api/v4`."""

    rules: ClassVar[Rules] = (
        ("GET", "/user", _user),
        ("GET", "/users", _users),
        ("GET", _GROUP, _group),
        ("GET", f"{_GROUP}/{_MEMBER}", _group_member),
        ("GET", f"{_PROJECT}/{_MEMBER}", _member),
        ("GET", f"{_PROJECT}/merge_requests", _requests),
        ("GET", _REQUEST, _request),
        ("GET", f"{_REQUEST}/approvals", _approvals),
        ("GET", f"{_REQUEST}/reviewers", _reviewers),
        ("GET", f"{_REQUEST}/notes", _notes),
        ("POST", f"{_REQUEST}/notes", _write_note),
        ("PUT", _NOTE, _change_note),
        ("GET", f"{_NOTE}/award_emoji", _awards),
        ("POST", f"{_NOTE}/award_emoji", _award),
        ("GET", rf"{_PROJECT}/repository/commits/(?P<commit>\w+)/merge_requests", _requests_of_commit),
        ("POST", rf"{_PROJECT}/statuses/(?P<commit>\w+)", _set_status),
        ("GET", f"{_PROJECT}/deployments", _deployments),
        ("POST", f"{_PROJECT}/deployments", _deploy),
        ("PUT", rf"{_PROJECT}/deployments/(?P<deployment>\d+)", _change_deployment),
    )
    pages = PageRule("per_page", 20, 100)

    def documents(self, asked: ForgeAsked) -> GitLabDocuments:
        """See ForgeDialect."""
        return GitLabDocuments(self.state, asked.web)

    def is_here(self, named: Mapping[str, str]) -> bool:
        """See ForgeDialect."""
        here = f"{self.state.owner.login}/{self.state.name}"
        return named.get("project", here) == here

    def signed_in(self, asked: ForgeAsked) -> ForgeAccount:
        """See ForgeDialect."""
        account = self.state.tokens.get(asked.headers.get("PRIVATE-TOKEN", ""))
        if account is None:
            raise ForgeErrorAnswer(401, "401 Unauthorized")
        return account

    def error(self, _status: int, message: str) -> Document:
        """See ForgeDialect."""
        return {"message": message}
