"""The state as the REST API of Forgejo and Gitea tells and takes it (version 1)."""

import base64
from typing import ClassVar, Final
from urllib.parse import unquote

from providers.sim.forge.contents import ForgeErrorAnswer, blob_of
from providers.sim.forge.dialect import (
    Document,
    ForgeAnswer,
    ForgeAsked,
    ForgeDialect,
    ForgeQuestion,
    PageRule,
    Rules,
)
from providers.sim.forge.github.documents import stamp
from providers.sim.forge.state import (
    ForgeAccount,
    ForgeState,
    StoredComment,
    StoredRequest,
    StoredReview,
    StoredStatus,
)

_GHOST: Final = ForgeAccount(-1, "Ghost")
_ROLES: Final = {"maintain": "write", "triage": "read"}
_REVIEWS: Final = {"CHANGES_REQUESTED": "REQUEST_CHANGES", "COMMENTED": "COMMENT", "DISMISSED": "APPROVED"}


class ForgejoDocuments:
    """Writes the state as answers of a server whose address is `api`, and whose pages are at `web`."""

    def __init__(self, state: ForgeState, api: str, web: str) -> None:
        self._state = state
        self._web = web
        self._here = f"{api}/repos/{state.owner.login}/{state.name}"
        self._page = f"{web}/{state.owner.login}/{state.name}"

    def user(self, account: ForgeAccount | None) -> Document:
        """A `User`."""
        account = account or _GHOST
        return {
            "id": account.id,
            "login": account.login,
            "login_name": "",
            "full_name": "",
            "email": f"{account.login}@noreply.example.com",
            "avatar_url": f"{self._web}/avatars/{account.id}",
            "html_url": f"{self._web}/{account.login}",
            "is_admin": False,
            "active": True,
            "created": stamp(0),
        }

    def permission(self, account: ForgeAccount) -> Document:
        """A `RepoCollaboratorPermission`."""
        role = self._state.roles.get(account.login, "none")
        permission = "owner" if account == self._state.owner else _ROLES.get(role, role)
        return {"permission": permission, "role_name": permission, "user": self.user(account)}

    def request(self, request: StoredRequest) -> Document:
        """A `PullRequest`."""
        is_merged, page = request.merged_at_s is not None, f"{self._page}/pulls/{request.number}"
        fork = self._state.id if request.fork is None else request.fork
        return {
            "id": 10_000 + request.number,
            "url": page,
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "number": request.number,
            "user": self.user(request.author),
            "title": request.title,
            "body": "",
            "labels": [],
            "milestone": None,
            "assignee": None,
            "assignees": None,
            "requested_reviewers": None,
            "state": "open" if request.closed_at_s is None else "closed",
            "draft": False,
            "is_locked": False,
            "comments": 0,
            "mergeable": not is_merged,
            "merged": is_merged,
            "merged_at": _stamp_or_none(request.merged_at_s),
            "merge_commit_sha": request.merge_commit if is_merged else None,
            "merged_by": self.user(request.merged_by) if request.merged_by else None,
            "base": self._end(request.base, request.base_commit, self._state.id),
            "head": self._end(request.head_branch, request.head, fork),
            "merge_base": request.base_commit,
            "due_date": None,
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "closed_at": _stamp_or_none(request.closed_at_s),
        }

    def file(self, path: str, content: bytes) -> Document:
        """A `ContentsResponse`."""
        return {
            "name": path.rpartition("/")[2],
            "path": path,
            "sha": blob_of(content),
            "type": "file",
            "size": len(content),
            "encoding": "base64",
            "content": base64.b64encode(content).decode(),
        }

    def review(self, review: StoredReview) -> Document:
        """A `PullReview`; a dismissed one keeps what it says."""
        return {
            "id": review.id,
            "user": self.user(review.author),
            "team": None,
            "state": _REVIEWS.get(review.state, review.state),
            "body": "",
            "commit_id": review.commit,
            "stale": review.commit != self._state.requests[review.number].head,
            "official": True,
            "dismissed": review.state == "DISMISSED",
            "comments_count": 0,
            "submitted_at": stamp(review.submitted_at_s),
            "updated_at": stamp(review.submitted_at_s),
            "html_url": f"{self._page}/pulls/{review.number}#issuecomment-{review.id}",
            "pull_request_url": f"{self._page}/pulls/{review.number}",
        }

    def comment(self, comment: StoredComment) -> Document:
        """A `Comment`."""
        page = f"{self._page}/pulls/{comment.number}"
        return {
            "id": comment.id,
            "html_url": f"{page}#issuecomment-{comment.id}",
            "pull_request_url": page,
            "issue_url": "",
            "user": self.user(comment.author),
            "original_author": "",
            "original_author_id": 0,
            "body": comment.body,
            "assets": [],
            "created_at": stamp(comment.created_at_s),
            "updated_at": stamp(comment.updated_at_s),
        }

    def reaction(self, account: ForgeAccount, content: str) -> Document:
        """A `Reaction`."""
        return {"user": self.user(account), "content": content, "created_at": stamp(self._state.clock.now())}

    def status(self, status: StoredStatus) -> Document:
        """A `CommitStatus`."""
        return {
            "id": status.id,
            "status": status.state,
            "target_url": status.target_url or "",
            "description": status.description or "",
            "url": f"{self._here}/statuses/{status.commit}",
            "context": status.context,
            "creator": self.user(status.creator),
            "created_at": stamp(status.created_at_s),
            "updated_at": stamp(status.created_at_s),
        }

    def commit(self, commit: str) -> Document:
        """A `Commit`."""
        return {"sha": commit, "url": f"{self._here}/git/commits/{commit}", "html_url": f"{self._page}/commit/{commit}"}

    def team(self, number: int, name: str) -> Document:
        """A `Team`."""
        return {
            "id": number,
            "name": name,
            "description": "",
            "organization": None,
            "includes_all_repositories": False,
            "permission": "read",
            "units": ["repo.code"],
            "can_create_org_repo": False,
        }

    def _end(self, ref: str, commit: str, repository: int) -> Document:
        """An end of a request; its repository is null where it is deleted."""
        name = self._state.name
        repo = {"id": repository, "name": name, "full_name": f"{self._state.owner.login}/{name}"}
        return {"label": ref, "ref": ref, "sha": commit, "repo_id": repository, "repo": repo if repository else None}


ForgejoQuestion = ForgeQuestion[ForgejoDocuments]


def _user(asked: ForgejoQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.user(asked.asker))


def _requests(asked: ForgejoQuestion) -> ForgeAnswer:
    wanted = asked.query.get("state", "open")
    found = [
        it for it in asked.state.requests.values() if wanted == "all" or (wanted == "open") == (it.closed_at_s is None)
    ]
    sort = asked.query.get("sort")
    found.sort(key=lambda it: (it.updated_at_s if sort == "recentupdate" else 0.0, it.number), reverse=sort != "oldest")
    return ForgeAnswer(200, [asked.documents.request(each) for each in found])


def _request(asked: ForgejoQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.request(asked.request()))


def _propose(asked: ForgejoQuestion) -> ForgeAnswer:
    said = asked.body
    made = asked.state.propose(asked.asker, said["head"], said["base"], said["title"])
    return ForgeAnswer(201, asked.documents.request(made))


def _change_request(asked: ForgejoQuestion) -> ForgeAnswer:
    """Answers 201, as Forgejo does."""
    request = asked.request()
    if asked.body.get("state") == "closed":
        asked.state.close(request.number)
    return ForgeAnswer(201, asked.documents.request(request))


def _file(asked: ForgejoQuestion) -> ForgeAnswer:
    path = unquote(asked.path["file"])
    content = asked.state.contents.read(asked.query.get("ref", "main"), path)
    if content is None:
        raise ForgeErrorAnswer(404, "The target couldn't be found.")
    return ForgeAnswer(200, asked.documents.file(path, content))


def _commit_file(asked: ForgejoQuestion) -> ForgeAnswer:
    """Commits to a branch, or to a new one that begins where it is."""
    said, contents, path = asked.body, asked.state.contents, unquote(asked.path["file"])
    branch = said.get("new_branch", said["branch"])
    if branch != said["branch"]:
        contents.branch(branch, contents.commit_of(said["branch"]))
    content = base64.b64decode(said["content"], validate=True)
    made = asked.state.write_file(branch, path, said["sha"], content, said["message"])
    return ForgeAnswer(200, {"content": asked.documents.file(path, content), "commit": {"sha": made}})


def _request_of_commit(asked: ForgejoQuestion) -> ForgeAnswer:
    for request in asked.state.requests.values():
        if request.merged_at_s is not None and request.merge_commit == asked.path["commit"]:
            return ForgeAnswer(200, asked.documents.request(request))
    raise ForgeErrorAnswer(404, "The target couldn't be found.")


def _commit(asked: ForgejoQuestion) -> ForgeAnswer:
    if asked.path["commit"] not in asked.state.commits:
        raise ForgeErrorAnswer(404, "The target couldn't be found.")
    return ForgeAnswer(200, asked.documents.commit(asked.path["commit"]))


def _permission(asked: ForgejoQuestion) -> ForgeAnswer:
    if asked.state.roles.get(asked.asker.login) != "admin":
        raise ForgeErrorAnswer(
            403,
            "Only admins can query all permissions, repo admins can query all repo permissions,"
            " collaborators can query only their own",
        )
    account = asked.state.accounts.get(asked.path["user"])
    if account is None:
        raise ForgeErrorAnswer(404, f"user does not exist [uid: 0, name: {asked.path['user']}]")
    return ForgeAnswer(200, asked.documents.permission(account))


def _reviews(asked: ForgejoQuestion) -> ForgeAnswer:
    number = asked.request().number
    return ForgeAnswer(200, [asked.documents.review(it) for it in asked.state.reviews.values() if it.number == number])


def _comments(asked: ForgejoQuestion) -> ForgeAnswer:
    number = asked.request().number
    found = [asked.documents.comment(it) for it in asked.state.comments.values() if it.number == number]
    return ForgeAnswer(200, found, whole=True)


def _write_comment(asked: ForgejoQuestion) -> ForgeAnswer:
    comment = asked.state.comment(asked.request().number, asked.asker, asked.body["body"])
    return ForgeAnswer(201, asked.documents.comment(comment))


def _change_comment(asked: ForgejoQuestion) -> ForgeAnswer:
    comment = asked.comment()
    asked.state.change(comment, asked.body["body"])
    return ForgeAnswer(200, asked.documents.comment(comment))


def _reactions(asked: ForgejoQuestion) -> ForgeAnswer:
    accounts = {each.id: each for each in asked.state.accounts.values()}
    found = [asked.documents.reaction(accounts[who], said) for who, said in asked.comment().reactions]
    return ForgeAnswer(200, found, whole=True)


def _react(asked: ForgejoQuestion) -> ForgeAnswer:
    content = asked.body["content"]
    _, is_new = asked.state.react(asked.comment(), asked.asker, content)
    return ForgeAnswer(201 if is_new else 200, asked.documents.reaction(asked.asker, content))


def _set_status(asked: ForgejoQuestion) -> ForgeAnswer:
    """Sets a status. That a commit is not there is an error of the server."""
    if asked.path["commit"] not in asked.state.commits:
        raise ForgeErrorAnswer(500, f"GetCommit[{asked.path['commit']}]: object does not exist")
    status = asked.state.state_of(asked.path["commit"], asked.asker, asked.body)
    return ForgeAnswer(201, asked.documents.status(status))


def _statuses(asked: ForgejoQuestion) -> ForgeAnswer:
    found = [it for it in reversed(asked.state.statuses) if it.commit == asked.path["commit"]]
    return ForgeAnswer(200, [asked.documents.status(each) for each in found])


def _teams(asked: ForgejoQuestion) -> ForgeAnswer:
    """Searches by a part of the name."""
    found = [
        asked.documents.team(number, team.partition("/")[2])
        for number, team in enumerate(asked.state.teams, 1)
        if team.startswith(f"{asked.path['organization']}/") and asked.query.get("q", "") in team.partition("/")[2]
    ]
    return ForgeAnswer(200, {"ok": True, "data": found})


def _team_member(asked: ForgejoQuestion) -> ForgeAnswer:
    members = dict(enumerate(asked.state.teams.values(), 1)).get(asked.number("team"), {})
    if members.get(asked.path["user"]) != "active":
        raise ForgeErrorAnswer(404, "The target couldn't be found.")
    return ForgeAnswer(200, asked.documents.user(asked.state.accounts[asked.path["user"]]))


def _stamp_or_none(at_s: float | None) -> str | None:
    return None if at_s is None else stamp(at_s)


_HERE: Final = r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)"
_PULL: Final = rf"{_HERE}/pulls/(?P<number>\d+)"
_COMMENT: Final = rf"{_HERE}/issues/comments/(?P<comment>\d+)"


class ForgejoDialect(ForgeDialect[ForgejoDocuments]):
    """The REST API of Forgejo and Gitea, below `/api/v1`."""

    rules: ClassVar[Rules] = (
        ("GET", "/user", _user),
        ("GET", r"/orgs/(?P<organization>[^/]+)/teams/search", _teams),
        ("GET", r"/teams/(?P<team>\d+)/members/(?P<user>[^/]+)", _team_member),
        ("GET", f"{_HERE}/pulls", _requests),
        ("POST", f"{_HERE}/pulls", _propose),
        ("GET", _PULL, _request),
        ("PATCH", _PULL, _change_request),
        ("GET", f"{_HERE}/contents/(?P<file>.+)", _file),
        ("PUT", f"{_HERE}/contents/(?P<file>.+)", _commit_file),
        ("GET", f"{_PULL}/reviews", _reviews),
        ("GET", rf"{_HERE}/commits/(?P<commit>\w+)/pull", _request_of_commit),
        ("GET", rf"{_HERE}/git/commits/(?P<commit>\w+)", _commit),
        ("GET", f"{_HERE}/collaborators/(?P<user>[^/]+)/permission", _permission),
        ("GET", rf"{_HERE}/issues/(?P<number>\d+)/comments", _comments),
        ("POST", rf"{_HERE}/issues/(?P<number>\d+)/comments", _write_comment),
        ("PATCH", _COMMENT, _change_comment),
        ("GET", f"{_COMMENT}/reactions", _reactions),
        ("POST", f"{_COMMENT}/reactions", _react),
        ("GET", rf"{_HERE}/statuses/(?P<commit>\w+)", _statuses),
        ("POST", rf"{_HERE}/statuses/(?P<commit>\w+)", _set_status),
    )
    pages = PageRule("limit", 30, 50)

    def documents(self, asked: ForgeAsked) -> ForgejoDocuments:
        """See ForgeDialect."""
        return ForgejoDocuments(self.state, asked.api, asked.web)

    def signed_in(self, asked: ForgeAsked) -> ForgeAccount:
        """See ForgeDialect."""
        scheme, _, secret = asked.headers.get("Authorization", "").partition(" ")
        account = self.state.tokens.get(secret) if scheme.lower() in {"token", "bearer"} else None
        if account is None:
            raise ForgeErrorAnswer(401, "invalid username, password or token")
        return account

    def error(self, _status: int, message: str) -> Document:
        """See ForgeDialect."""
        return {"message": message, "url": f"{self.state.owner.login}/api/swagger"}
