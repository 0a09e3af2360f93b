"""What the pretended GitHub answers to which request."""

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote

import jwt

from providers.sim.forge.contents import ForgeErrorAnswer
from providers.sim.forge.dialect import (
    Document,
    ForgeAnswer,
    ForgeAsked,
    ForgeDialect,
    ForgeQuestion,
    ForgeReply,
    PageRule,
    Rules,
)
from providers.sim.forge.github.documents import GitHubDocuments
from providers.sim.forge.state import (
    RATE,
    ForgeAccount,
    StoredCheckRun,
    StoredDeployment,
    StoredRequest,
)

VERSIONS: Final = ("2022-11-28", "2026-03-10")
GitHubQuestion = ForgeQuestion[GitHubDocuments]


def _user(asked: GitHubQuestion) -> ForgeAnswer:
    if asked.asker.is_bot:
        raise ForgeErrorAnswer(403, "Resource not accessible by integration")
    return ForgeAnswer(200, asked.documents.own_user(asked.asker))


def _app(asked: GitHubQuestion) -> ForgeAnswer:
    document = asked.documents.app()
    if asked.account is not None or document is None:
        raise ForgeErrorAnswer(401, "A JSON web token could not be decoded")
    return ForgeAnswer(200, document)


def _access_token(asked: GitHubQuestion) -> ForgeAnswer:
    app = asked.state.app
    if app is None or asked.account is not None or asked.number("installation") != app.installation:
        raise ForgeErrorAnswer(404, "Not Found")
    if set(asked.body.get("repositories", [])) - {asked.state.name}:
        raise ForgeErrorAnswer(422, "There is at least one repository that does not exist or is not accessible")
    # Not the state's time: clients keep a token by the time of day.
    ends = datetime.now(UTC) + timedelta(hours=1)
    return ForgeAnswer(
        201,
        {
            "token": asked.state.issue_token(),
            "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "permissions": {"checks": "write", "metadata": "read", "pull_requests": "write"},
            "repository_selection": "selected",
        },
    )


def _requests(asked: GitHubQuestion) -> ForgeAnswer:
    wanted, base = asked.query.get("state", "open"), asked.query.get("base")
    head = asked.query.get("head")
    found = [
        request
        for request in asked.state.requests.values()
        if (wanted == "all" or (wanted == "open") == (request.closed_at_s is None))
        and base in {None, request.base}
        and head in {None, f"{asked.documents.head_owner(request).login}:{request.head_branch}"}
    ]
    key = _updated if asked.query.get("sort") == "updated" else _created
    found.sort(key=key, reverse=asked.query.get("direction", "desc") == "desc")
    return ForgeAnswer(200, [asked.documents.request(request, whole=False) for request in found])


def _request(asked: GitHubQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.request(asked.request(), whole=True))


def _propose(asked: GitHubQuestion) -> ForgeAnswer:
    said = asked.body
    made = asked.state.propose(asked.asker, said["head"], said["base"], said["title"])
    return ForgeAnswer(201, asked.documents.request(made, whole=True))


def _change_request(asked: GitHubQuestion) -> ForgeAnswer:
    request = asked.request()
    if asked.body.get("state") == "closed":
        asked.state.close(request.number)
    return ForgeAnswer(200, asked.documents.request(request, whole=True))


def _make_branch(asked: GitHubQuestion) -> ForgeAnswer:
    ref, commit = asked.body["ref"], asked.body["sha"]
    asked.state.contents.branch(ref.removeprefix("refs/heads/"), commit)
    return ForgeAnswer(201, asked.documents.reference(ref, commit))


def _file(asked: GitHubQuestion) -> ForgeAnswer:
    ref, path = asked.query.get("ref", "main"), unquote(asked.path["path"])
    content = asked.state.contents.read(ref, path)
    if content is None:
        raise ForgeErrorAnswer(404, "Not Found")
    return ForgeAnswer(200, asked.documents.file(path, ref, content))


def _write_file(asked: GitHubQuestion) -> ForgeAnswer:
    said, path = asked.body, unquote(asked.path["path"])
    if "sha" not in said:
        raise ForgeErrorAnswer(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
    content = base64.b64decode(said["content"], validate=True)
    made = asked.state.write_file(said["branch"], path, said["sha"], content, said["message"])
    return ForgeAnswer(200, asked.documents.committed(path, said["branch"], content, made, said["message"]))


def _requests_of_commit(asked: GitHubQuestion) -> ForgeAnswer:
    commit = asked.path["commit"]
    if commit not in asked.state.commits:
        raise ForgeErrorAnswer(422, f"No commit found for SHA: {commit}")
    found = [each for each in asked.state.requests.values() if commit in {each.head, each.merge_commit}]
    return ForgeAnswer(200, [asked.documents.request(request, whole=False) for request in found])


def _permission(asked: GitHubQuestion) -> ForgeAnswer:
    account = asked.state.accounts.get(asked.path["user"])
    if account is None:
        raise ForgeErrorAnswer(404, f"{asked.path['user']} is not a user")
    return ForgeAnswer(200, asked.documents.permission(account))


def _reviews(asked: GitHubQuestion) -> ForgeAnswer:
    number = asked.request().number
    found = [review for review in asked.state.reviews.values() if review.number == number]
    return ForgeAnswer(200, [asked.documents.review(review) for review in found])


def _membership(asked: GitHubQuestion) -> ForgeAnswer:
    team, login = _stored_team(asked), asked.path["user"]
    if login not in asked.state.teams[team]:
        raise ForgeErrorAnswer(404, "Not Found")
    return ForgeAnswer(200, asked.documents.membership(team, login))


def _team(asked: GitHubQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.team(_stored_team(asked)))


def _comments(asked: GitHubQuestion) -> ForgeAnswer:
    number = asked.request().number
    found = [comment for comment in asked.state.comments.values() if comment.number == number]
    return ForgeAnswer(200, [asked.documents.comment(comment) for comment in found])


def _write_comment(asked: GitHubQuestion) -> ForgeAnswer:
    comment = asked.state.comment(asked.request().number, asked.asker, asked.body["body"])
    return ForgeAnswer(201, asked.documents.comment(comment))


def _comment(asked: GitHubQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.comment(asked.comment()))


def _change_comment(asked: GitHubQuestion) -> ForgeAnswer:
    comment = asked.comment()
    asked.state.change(comment, asked.body["body"])
    return ForgeAnswer(200, asked.documents.comment(comment))


def _reactions(asked: GitHubQuestion) -> ForgeAnswer:
    accounts = {account.id: account for account in (*asked.state.accounts.values(), *asked.state.tokens.values())}
    found = asked.comment().reactions.items()
    return ForgeAnswer(200, [asked.documents.reaction(number, accounts[who], said) for (who, said), number in found])


def _react(asked: GitHubQuestion) -> ForgeAnswer:
    content = asked.body["content"]
    number, is_new = asked.state.react(asked.comment(), asked.asker, content)
    return ForgeAnswer(201 if is_new else 200, asked.documents.reaction(number, asked.asker, content))


def _set_status(asked: GitHubQuestion) -> ForgeAnswer:
    status = asked.state.state_of(asked.path["commit"], asked.asker, asked.body)
    return ForgeAnswer(201, asked.documents.status(status))


def _statuses(asked: GitHubQuestion) -> ForgeAnswer:
    found = [each for each in reversed(asked.state.statuses) if each.commit == asked.path["commit"]]
    return ForgeAnswer(200, [asked.documents.status(status) for status in found])


def _deployments(asked: GitHubQuestion) -> ForgeAnswer:
    wanted = asked.query.get("sha"), asked.query.get("environment")
    found = [
        it for it in reversed(asked.state.deployments.values()) if wanted in {(it.commit, it.environment), (None, None)}
    ]
    return ForgeAnswer(200, [asked.documents.deployment(it) for it in found])


def _deploy(asked: GitHubQuestion) -> ForgeAnswer:
    said = asked.body
    if said.get("auto_merge", True) or said.get("required_contexts") is None:
        raise ForgeErrorAnswer(409, "Conflict: Commit status checks failed for the ref.")
    made = asked.state.deploy(said["ref"], said.get("environment", "production"), asked.asker)
    return ForgeAnswer(201, asked.documents.deployment(made))


def _deployment_statuses(asked: GitHubQuestion) -> ForgeAnswer:
    made = _stored_deployment(asked)
    return ForgeAnswer(200, [asked.documents.deployment_status(made, said) for said in reversed(made.statuses)])


def _tell_deployment(asked: GitHubQuestion) -> ForgeAnswer:
    made, said = _stored_deployment(asked), asked.body
    asked.state.tell_deployment(made, said["state"], said.get("description", ""), said.get("log_url", ""))
    return ForgeAnswer(201, asked.documents.deployment_status(made, made.statuses[-1]))


def _stored_deployment(asked: GitHubQuestion) -> StoredDeployment:
    made = asked.state.deployments.get(asked.number("deployment"))
    if made is None:
        raise ForgeErrorAnswer(404, "Not Found")
    return made


def _start_check(asked: GitHubQuestion) -> ForgeAnswer:
    _only_an_app(asked)
    return ForgeAnswer(201, asked.documents.check_run(asked.state.start_check(asked.body)))


def _change_check(asked: GitHubQuestion) -> ForgeAnswer:
    _only_an_app(asked)
    run = _stored_run(asked)
    asked.state.change_check(run, asked.body)
    return ForgeAnswer(200, asked.documents.check_run(run))


def _checks(asked: GitHubQuestion) -> ForgeAnswer:
    runs = [asked.documents.check_run(run) for run in asked.state.latest_checks(asked.path["commit"]).values()]
    return ForgeAnswer(200, {"total_count": len(runs), "check_runs": runs})


def _annotations(asked: GitHubQuestion) -> ForgeAnswer:
    run = _stored_run(asked)
    return ForgeAnswer(200, [asked.documents.annotation(run, said) for said in run.annotations])


def _only_an_app(asked: GitHubQuestion) -> None:
    if not asked.asker.is_bot:
        raise ForgeErrorAnswer(403, "You must authenticate via a GitHub App.")


def _stored_team(asked: GitHubQuestion) -> str:
    team = f"{asked.path['organization']}/{asked.path['slug']}"
    if team not in asked.state.teams:
        raise ForgeErrorAnswer(404, "Not Found")
    return team


def _stored_run(asked: GitHubQuestion) -> StoredCheckRun:
    run = asked.state.check_runs.get(asked.number("run"))
    if run is None:
        raise ForgeErrorAnswer(404, "Not Found")
    return run


def _created(request: StoredRequest) -> tuple[float, int]:
    return request.created_at_s, request.number


def _updated(request: StoredRequest) -> tuple[float, int]:
    return request.updated_at_s, request.number


_REPOSITORY: Final = r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)"
_TEAM: Final = r"/orgs/(?P<organization>[^/]+)/teams/(?P<slug>[^/]+)"
_RULES: Final[Rules] = (
    ("GET", "/user", _user),
    ("GET", "/app", _app),
    ("POST", r"/app/installations/(?P<installation>\d+)/access_tokens", _access_token),
    ("GET", f"{_REPOSITORY}/pulls", _requests),
    ("POST", f"{_REPOSITORY}/pulls", _propose),
    ("PATCH", rf"{_REPOSITORY}/pulls/(?P<number>\d+)", _change_request),
    ("POST", f"{_REPOSITORY}/git/refs", _make_branch),
    ("GET", f"{_REPOSITORY}/contents/(?P<path>.+)", _file),
    ("PUT", f"{_REPOSITORY}/contents/(?P<path>.+)", _write_file),
    ("GET", rf"{_REPOSITORY}/pulls/(?P<number>\d+)", _request),
    ("GET", rf"{_REPOSITORY}/pulls/(?P<number>\d+)/reviews", _reviews),
    ("GET", _TEAM, _team),
    ("GET", f"{_TEAM}/memberships/(?P<user>[^/]+)", _membership),
    ("GET", rf"{_REPOSITORY}/commits/(?P<commit>\w+)/pulls", _requests_of_commit),
    ("GET", rf"{_REPOSITORY}/commits/(?P<commit>\w+)/statuses", _statuses),
    ("GET", f"{_REPOSITORY}/collaborators/(?P<user>[^/]+)/permission", _permission),
    ("GET", rf"{_REPOSITORY}/issues/(?P<number>\d+)/comments", _comments),
    ("POST", rf"{_REPOSITORY}/issues/(?P<number>\d+)/comments", _write_comment),
    ("GET", rf"{_REPOSITORY}/issues/comments/(?P<comment>\d+)", _comment),
    ("PATCH", rf"{_REPOSITORY}/issues/comments/(?P<comment>\d+)", _change_comment),
    ("GET", rf"{_REPOSITORY}/issues/comments/(?P<comment>\d+)/reactions", _reactions),
    ("POST", rf"{_REPOSITORY}/issues/comments/(?P<comment>\d+)/reactions", _react),
    ("POST", rf"{_REPOSITORY}/statuses/(?P<commit>\w+)", _set_status),
    ("GET", f"{_REPOSITORY}/deployments", _deployments),
    ("POST", f"{_REPOSITORY}/deployments", _deploy),
    ("GET", rf"{_REPOSITORY}/deployments/(?P<deployment>\d+)/statuses", _deployment_statuses),
    ("POST", rf"{_REPOSITORY}/deployments/(?P<deployment>\d+)/statuses", _tell_deployment),
    ("POST", f"{_REPOSITORY}/check-runs", _start_check),
    ("PATCH", rf"{_REPOSITORY}/check-runs/(?P<run>\d+)", _change_check),
    ("GET", rf"{_REPOSITORY}/check-runs/(?P<run>\d+)/annotations", _annotations),
    ("GET", rf"{_REPOSITORY}/commits/(?P<commit>\w+)/check-runs", _checks),
)


class GitHubDialect(ForgeDialect[GitHubDocuments]):
    """GitHub's REST API."""

    rules = _RULES
    pages = PageRule("per_page", 30, 100)

    def documents(self, asked: ForgeAsked) -> GitHubDocuments:
        """See ForgeDialect."""
        return GitHubDocuments(self.state, asked.api, asked.web)

    def signed_in(self, asked: ForgeAsked) -> ForgeAccount | None:
        """Returns who asks, None for the App itself, which proves that it is by its key."""
        scheme, _, secret = asked.headers.get("Authorization", "").partition(" ")
        if scheme.lower() in {"token", "bearer"} and secret in self.state.tokens:
            return self.state.tokens[secret]
        app = self.state.app
        if app is not None and scheme.lower() == "bearer" and re.fullmatch(r"/app(/.*)?", asked.path):
            try:
                jwt.decode(secret, app.public_key, algorithms=["RS256"], issuer=str(app.id))
            except jwt.InvalidTokenError as error:
                raise ForgeErrorAnswer(401, f"A JSON web token could not be decoded: {error}") from error
            return None
        raise ForgeErrorAnswer(401, "Bad credentials")

    def admit(self, asked: ForgeAsked) -> None:
        """The version has to be one, and the rate of the hour must not be used up."""
        if asked.headers.get("X-GitHub-Api-Version", VERSIONS[0]) not in VERSIONS:
            raise ForgeErrorAnswer(400, "The API version is not supported.")
        if self.state.is_exhausted():
            raise ForgeErrorAnswer(403, "API rate limit exceeded for user ID 1.")

    def error(self, status: int, message: str) -> Document:
        """A `basic-error`."""
        return {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}

    def finish(self, asked: ForgeAsked, reply: ForgeReply) -> ForgeReply:
        """What did not change is not sent, and costs nothing."""
        headers = dict(reply.headers)
        if asked.method == "GET" and reply.status == 200:
            headers["ETag"] = f'W/"{hashlib.sha256(reply.body).hexdigest()}"'
            if asked.headers.get("If-None-Match") == headers["ETag"]:
                reply = ForgeReply(304, headers, b"")
        if reply.status != 304:
            self.state.spend()
        headers |= {
            "X-RateLimit-Limit": str(RATE),
            "X-RateLimit-Remaining": str(self.state.remaining),
            "X-RateLimit-Reset": str(int(self.state.resets_at_s)),
        }
        return replace(reply, headers=headers)
