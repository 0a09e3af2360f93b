"""The state as GitHub's REST API tells it (version 2022-11-28): every field that its description promises.

The description is GitHub's own (github.com/github/rest-api-description); the tests hold every answer to it.
"""

import base64
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from providers.sim.forge.contents import blob_of
from providers.sim.forge.dialect import Document
from providers.sim.forge.state import (
    ForgeAccount,
    ForgeState,
    StoredCheckRun,
    StoredComment,
    StoredDeployment,
    StoredRequest,
    StoredReview,
    StoredStatus,
)

GHOST = ForgeAccount(10137, "ghost")
"""Whom GitHub puts in the place of somebody who is deleted."""
_USER_LINKS = ("events", "followers", "following", "gists", "organizations", "received_events", "repos", "starred")
_REPOSITORY_LINKS = (
    *("archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents"),
    *("contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks"),
    *("issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones"),
    *("notifications", "pulls", "releases", "stargazers", "statuses", "subscribers", "subscription", "tags", "teams"),
    "trees",
)
_ROLES = {"maintain": "write", "triage": "read"}
"""Roles that `permission` tells as an older one."""


def stamp(at_s: float) -> str:
    """Returns a time as GitHub writes it."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_NOT_OF_A_COMMIT: Final = frozenset({"content", "encoding", "download_url"})


class GitHubDocuments:
    """Writes the state as answers of a server whose address is `api`, and whose pages are at `web`."""

    def __init__(self, state: ForgeState, api: str, web: str) -> None:
        self._state = state
        self._api = api
        self._web = web
        self._here = f"{api}/repos/{state.owner.login}/{state.name}"
        self._page = f"{web}/{state.owner.login}/{state.name}"

    def user(self, account: ForgeAccount) -> Document:
        """A `simple-user`."""
        name = quote(account.login)
        url = f"{self._api}/users/{name}"
        return {
            "login": account.login,
            "id": account.id,
            "node_id": f"U_{account.id}",
            "avatar_url": f"{self._web}/avatars/{account.id}",
            "gravatar_id": "",
            "url": url,
            "html_url": f"{self._web}/{name}",
            "subscriptions_url": f"{url}/subscriptions",
            **{f"{link}_url": f"{url}/{link}" for link in _USER_LINKS},
            "type": "Bot" if account.is_bot else "User",
            "site_admin": False,
        }

    def own_user(self, account: ForgeAccount) -> Document:
        """A `public-user`, which somebody is told of themselves who lacks the scope for more."""
        nothing = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio"))
        counts = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
        since = stamp(0)
        return {**self.user(account), **nothing, **counts, "created_at": since, "updated_at": since}

    def app(self) -> Document | None:
        """An `integration`."""
        app = self._state.app
        if app is None:
            return None
        return {
            "id": app.id,
            "slug": app.slug,
            "node_id": f"A_{app.id}",
            "owner": self.user(self._state.owner),
            "name": app.slug,
            "description": None,
            "external_url": self._web,
            "html_url": f"{self._web}/apps/{app.slug}",
            "created_at": stamp(0),
            "updated_at": stamp(0),
            "permissions": {"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write"},
            "events": ["pull_request"],
        }

    def permission(self, account: ForgeAccount) -> Document:
        """A `repository-collaborator-permission`."""
        role = self._state.roles.get(account.login, "none")
        permission = _ROLES.get(role, role)
        reached = {"admin": 5, "maintain": 4, "write": 3, "triage": 2, "read": 1, "none": 0}[role]
        allowed = {name: reached >= least for name, least in zip(("pull", "triage", "push"), (1, 2, 3), strict=True)}
        allowed |= {"maintain": reached >= 4, "admin": reached >= 5}
        user = {**self.user(account), "role_name": role, "permissions": allowed}
        return {"permission": permission, "role_name": role, "user": user}

    def request(self, request: StoredRequest, *, whole: bool) -> Document:
        """A `pull-request-simple`, or the `pull-request` that is told of one alone."""
        url, page = f"{self._here}/pulls/{request.number}", f"{self._page}/pull/{request.number}"
        issue = f"{self._here}/issues/{request.number}"
        links = {
            "self": url,
            "html": page,
            "issue": issue,
            "comments": f"{issue}/comments",
            "review_comments": f"{url}/comments",
            "review_comment": f"{self._here}/pulls/comments{{/number}}",
            "commits": f"{url}/commits",
            "statuses": f"{self._here}/statuses/{request.head}",
        }
        named = {f"{name}_url": links[name] for name in ("comments", "commits", "review_comments", "review_comment")}
        document: Document = {
            **named,
            "url": url,
            "id": 10_000 + request.number,
            "node_id": f"PR_{request.number}",
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "issue_url": issue,
            "statuses_url": links["statuses"],
            "number": request.number,
            "state": "open" if request.closed_at_s is None else "closed",
            "locked": False,
            "title": request.title,
            "user": self.user(request.author or GHOST),
            "body": None,
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "closed_at": _stamp_or_none(request.closed_at_s),
            "merged_at": _stamp_or_none(request.merged_at_s),
            "merge_commit_sha": request.merge_commit,
            "assignee": None,
            "milestone": None,
            "labels": [],
            "auto_merge": None,
            "draft": False,
            "author_association": "CONTRIBUTOR",
            "head": self._head(request),
            "base": self._end(request.base, request.base_commit, self._state.owner, self._state.id),
            "_links": {name: {"href": link} for name, link in links.items()},
        }
        return {**document, **self._more(request)} if whole else document

    def reference(self, ref: str, commit: str) -> Document:
        """A `git-ref`."""
        at = {"type": "commit", "sha": commit, "url": f"{self._here}/git/commits/{commit}"}
        return {"ref": ref, "node_id": f"REF_{ref}", "url": f"{self._here}/git/{ref}", "object": at}

    def file(self, path: str, ref: str, content: bytes) -> Document:
        """A `content-file`."""
        url, git = f"{self._here}/contents/{path}?ref={ref}", f"{self._here}/git/blobs/{blob_of(content)}"
        page = f"{self._page}/blob/{ref}/{path}"
        return {
            "type": "file",
            "encoding": "base64",
            "size": len(content),
            "name": path.rpartition("/")[2],
            "path": path,
            "content": base64.encodebytes(content).decode(),
            "sha": blob_of(content),
            "url": url,
            "git_url": git,
            "html_url": page,
            "download_url": None,
            "_links": {"self": url, "git": git, "html": page},
        }

    def committed(self, path: str, ref: str, content: bytes, commit: str, words: str) -> Document:
        """A `file-commit`."""
        file = {k: v for k, v in self.file(path, ref, content).items() if k not in _NOT_OF_A_COMMIT}
        return {"content": file, "commit": {"sha": commit, "node_id": f"C_{commit}", "message": words}}

    def comment(self, comment: StoredComment) -> Document:
        """An `issue-comment`."""
        at = f"{self._here}/issues"
        return {
            "url": f"{at}/comments/{comment.id}",
            "html_url": f"{self._page}/pull/{comment.number}#issuecomment-{comment.id}",
            "issue_url": f"{at}/{comment.number}",
            "id": comment.id,
            "node_id": f"IC_{comment.id}",
            "user": None if comment.author is None else self.user(comment.author),
            "created_at": stamp(comment.created_at_s),
            "updated_at": stamp(comment.updated_at_s),
            "author_association": "NONE",
            "body": comment.body,
            "performed_via_github_app": self.app() if comment.author == self._state.bot else None,
        }

    def review(self, review: StoredReview) -> Document:
        """A `pull-request-review`."""
        url = f"{self._here}/pulls/{review.number}"
        page = f"{self._page}/pull/{review.number}#pullrequestreview-{review.id}"
        return {
            "id": review.id,
            "node_id": f"PRR_{review.id}",
            "user": None if review.author is None else self.user(review.author),
            "body": "",
            "state": review.state,
            "html_url": page,
            "pull_request_url": url,
            "_links": {"html": {"href": page}, "pull_request": {"href": url}},
            "submitted_at": stamp(review.submitted_at_s),
            "commit_id": review.commit,
            "author_association": "MEMBER",
        }

    def membership(self, team: str, login: str) -> Document:
        """A `team-membership`."""
        organization, _, slug = team.partition("/")
        url = f"{self._api}/orgs/{organization}/teams/{slug}/memberships/{quote(login)}"
        return {"url": url, "role": "member", "state": self._state.teams[team][login]}

    def team(self, team: str) -> Document:
        """A `team-full`."""
        organization, _, slug = team.partition("/")
        here, at = f"{self._api}/orgs/{organization}", stamp(0)
        links = ("events", "hooks", "issues", "repos")
        owner: Document = {
            **{f"{link}_url": f"{here}/{link}" for link in links},
            **dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0),
            "login": organization,
            "id": self._state.owner.id,
            "node_id": f"O_{organization}",
            "url": here,
            "members_url": f"{here}/members{{/member}}",
            "public_members_url": f"{here}/public_members{{/member}}",
            "avatar_url": f"{self._web}/avatars/{organization}",
            "description": None,
            "has_organization_projects": False,
            "has_repository_projects": False,
            "html_url": f"{self._web}/{organization}",
            "type": "Organization",
            "created_at": at,
            "updated_at": at,
            "archived_at": None,
        }
        return {
            "id": 5000 + len(slug),
            "node_id": f"T_{slug}",
            "name": slug,
            "slug": slug,
            "description": None,
            "permission": "pull",
            "url": f"{here}/teams/{slug}",
            "html_url": f"{self._web}/orgs/{organization}/teams/{slug}",
            "members_url": f"{here}/teams/{slug}/members{{/member}}",
            "repositories_url": f"{here}/teams/{slug}/repos",
            "type": "organization",
            "created_at": at,
            "updated_at": at,
            "members_count": len(self._state.teams[team]),
            "repos_count": 0,
            "organization": owner,
        }

    def reaction(self, number: int, account: ForgeAccount, content: str) -> Document:
        """A `reaction`."""
        at = stamp(self._state.clock.now())
        return {
            "id": number,
            "node_id": f"R_{number}",
            "user": self.user(account),
            "content": content,
            "created_at": at,
        }

    def status(self, status: StoredStatus) -> Document:
        """A `status`."""
        at = stamp(status.created_at_s)
        return {
            "url": f"{self._here}/statuses/{status.commit}",
            "avatar_url": f"{self._web}/avatars/{status.creator.id}",
            "id": status.id,
            "node_id": f"S_{status.id}",
            "state": status.state,
            "description": status.description,
            "target_url": status.target_url,
            "context": status.context,
            "created_at": at,
            "updated_at": at,
            "creator": self.user(status.creator),
        }

    def deployment(self, made: StoredDeployment) -> Document:
        """A `deployment`."""
        url, at = f"{self._here}/deployments/{made.id}", stamp(made.created_at_s)
        return {
            "url": url,
            "id": made.id,
            "node_id": f"DE_{made.id}",
            "task": "deploy",
            "original_environment": made.environment,
            "environment": made.environment,
            "description": None,
            "created_at": at,
            "updated_at": at,
            "statuses_url": f"{url}/statuses",
            "repository_url": self._here,
            "creator": self.user(made.creator),
            "sha": made.commit,
            "ref": made.commit,
            "payload": {},
        }

    def deployment_status(self, made: StoredDeployment, said: tuple[int, str, str, str]) -> Document:
        """A `deployment-status`."""
        number, state, description, link = said
        url, at = f"{self._here}/deployments/{made.id}", stamp(made.created_at_s)
        return {
            "url": f"{url}/statuses/{number}",
            "id": number,
            "node_id": f"DES_{number}",
            "state": state,
            "creator": self.user(made.creator),
            "description": description,
            "environment": made.environment,
            "target_url": link,
            "log_url": link,
            "created_at": at,
            "updated_at": at,
            "deployment_url": url,
            "repository_url": self._here,
        }

    def check_run(self, run: StoredCheckRun) -> Document:
        """A `check-run`."""
        url, is_done = f"{self._here}/check-runs/{run.id}", run.status == "completed"
        return {
            "id": run.id,
            "node_id": f"CR_{run.id}",
            "head_sha": run.commit,
            "external_id": "",
            "url": url,
            "html_url": f"{self._page}/runs/{run.id}",
            "details_url": run.details_url,
            "status": run.status,
            "conclusion": run.conclusion,
            "started_at": stamp(run.started_at_s),
            "completed_at": stamp(run.started_at_s) if is_done else None,
            "output": {
                "title": run.title,
                "summary": run.summary,
                "text": None,
                "annotations_count": len(run.annotations),
                "annotations_url": f"{url}/annotations",
            },
            "name": run.name,
            "check_suite": {"id": 1},
            "app": self.app(),
            "pull_requests": [],
        }

    def annotation(self, run: StoredCheckRun, said: Any) -> Document:
        """A `check-annotation`."""
        nothing: Document = dict.fromkeys(("start_column", "end_column", "title", "raw_details"))
        return {**nothing, **said, "blob_href": f"{self._page}/blob/{run.commit}/{said['path']}"}

    def _more(self, request: StoredRequest) -> Document:
        comments = sum(comment.number == request.number for comment in self._state.comments.values())
        is_merged = request.merged_at_s is not None
        return {
            "merged": is_merged,
            "merged_by": self.user(request.merged_by) if request.merged_by else None,
            "mergeable": None if is_merged else True,
            "mergeable_state": "unknown" if is_merged else "clean",
            "maintainer_can_modify": False,
            "comments": comments,
            "review_comments": 0,
            "commits": 1,
            "additions": 1,
            "deletions": 0,
            "changed_files": 1,
        }

    def _head(self, request: StoredRequest) -> Document:
        fork = self._state.id if request.fork is None else request.fork
        return self._end(request.head_branch, request.head, self.head_owner(request), fork)

    def head_owner(self, request: StoredRequest) -> ForgeAccount:
        """Whose repository a request comes from."""
        return self._state.owner if request.fork is None else request.author or GHOST

    def _end(self, ref: str, commit: str, owner: ForgeAccount, repository: int) -> Document:
        """An end of a request; its repository is null where it is deleted."""
        return {
            "label": f"{owner.login}:{ref}",
            "ref": ref,
            "sha": commit,
            "user": self.user(owner),
            "repo": self._repository(owner, repository) if repository else None,
        }

    def _repository(self, owner: ForgeAccount, number: int) -> Document:
        full_name, at = f"{owner.login}/{self._state.name}", stamp(0)
        url, page = f"{self._api}/repos/{full_name}", f"{self._web}/{full_name}"

        numbers = ("forks", "forks_count", "open_issues", "open_issues_count", "size", "stargazers_count")
        switches = ("has_downloads", "has_issues", "has_projects", "has_wiki", "has_pages", "archived", "disabled")
        return {
            **{f"{name}_url": f"{url}/{name}" for name in _REPOSITORY_LINKS},
            **dict.fromkeys((*numbers, "watchers", "watchers_count"), 0),
            **dict.fromkeys(switches, False),
            **dict.fromkeys(("description", "homepage", "language", "mirror_url", "license")),
            "id": number,
            "node_id": f"R_{number}",
            "name": self._state.name,
            "full_name": full_name,
            "owner": self.user(owner),
            "private": True,
            "fork": number != self._state.id,
            "html_url": page,
            "url": url,
            "clone_url": f"{page}.git",
            "git_url": f"{page}.git",
            "ssh_url": f"{page}.git",
            "svn_url": page,
            "default_branch": "main",
            "pushed_at": at,
            "created_at": at,
            "updated_at": at,
        }


def _stamp_or_none(at_s: float | None) -> str | None:
    return None if at_s is None else stamp(at_s)
