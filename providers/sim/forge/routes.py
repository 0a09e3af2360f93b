"""What the pretended GitHub answers to which request."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from providers.sim.forge.documents import Document, GitHubDocuments
from providers.sim.forge.state import (
    GitHubAccount,
    GitHubErrorAnswer,
    GitHubState,
    StoredCheckRun,
    StoredComment,
    StoredRequest,
)


@dataclass(frozen=True, slots=True)
class GitHubQuestion:
    """A request that is understood. `account` is None where an App asks as itself."""

    state: GitHubState
    documents: GitHubDocuments
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    account: GitHubAccount | None

    def number(self, name: str) -> int:
        """Returns a number of the path."""
        return int(self.path[name])

    @property
    def asker(self) -> GitHubAccount:
        """Who asks; the App itself may not ask this."""
        if self.account is None:
            raise GitHubErrorAnswer(403, "Resource not accessible by integration")
        return self.account


@dataclass(frozen=True, slots=True)
class GitHubAnswer:
    """A status and a document; a list is cut into pages by who sends it."""

    status: int
    document: Document | Sequence[Document]


def _user(asked: GitHubQuestion) -> GitHubAnswer:
    if asked.asker.is_bot:
        raise GitHubErrorAnswer(403, "Resource not accessible by integration")
    return GitHubAnswer(200, asked.documents.own_user(asked.asker))


def _app(asked: GitHubQuestion) -> GitHubAnswer:
    document = asked.documents.app()
    if asked.account is not None or document is None:
        raise GitHubErrorAnswer(401, "A JSON web token could not be decoded")
    return GitHubAnswer(200, document)


def _access_token(asked: GitHubQuestion) -> GitHubAnswer:
    app = asked.state.app
    if app is None or asked.account is not None or asked.number("installation") != app.installation:
        raise GitHubErrorAnswer(404, "Not Found")
    if set(asked.body.get("repositories", [])) - {asked.state.name}:
        raise GitHubErrorAnswer(422, "There is at least one repository that does not exist or is not accessible")
    # Not the state's time: clients keep a token by the time of day.
    ends = datetime.now(UTC) + timedelta(hours=1)
    return GitHubAnswer(
        201,
        {
            "token": asked.state.issue_token(),
            "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "permissions": {"checks": "write", "metadata": "read", "pull_requests": "write"},
            "repository_selection": "selected",
        },
    )


def _requests(asked: GitHubQuestion) -> GitHubAnswer:
    wanted, base = asked.query.get("state", "open"), asked.query.get("base")
    found = [
        request
        for request in asked.state.requests.values()
        if (wanted == "all" or (wanted == "open") == (request.closed_at_s is None)) and base in {None, request.base}
    ]
    key = _updated if asked.query.get("sort") == "updated" else _created
    found.sort(key=key, reverse=asked.query.get("direction", "desc") == "desc")
    return GitHubAnswer(200, [asked.documents.request(request, whole=False) for request in found])


def _request(asked: GitHubQuestion) -> GitHubAnswer:
    return GitHubAnswer(200, asked.documents.request(_stored_request(asked), whole=True))


def _requests_of_commit(asked: GitHubQuestion) -> GitHubAnswer:
    commit = asked.path["commit"]
    if commit not in asked.state.commits:
        raise GitHubErrorAnswer(422, f"No commit found for SHA: {commit}")
    found = [each for each in asked.state.requests.values() if commit in {each.head, each.merge_commit}]
    return GitHubAnswer(200, [asked.documents.request(request, whole=False) for request in found])


def _permission(asked: GitHubQuestion) -> GitHubAnswer:
    account = asked.state.accounts.get(asked.path["user"])
    if account is None:
        raise GitHubErrorAnswer(404, f"{asked.path['user']} is not a user")
    return GitHubAnswer(200, asked.documents.permission(account))


def _comments(asked: GitHubQuestion) -> GitHubAnswer:
    number = _stored_request(asked).number
    found = [comment for comment in asked.state.comments.values() if comment.number == number]
    return GitHubAnswer(200, [asked.documents.comment(comment) for comment in found])


def _write_comment(asked: GitHubQuestion) -> GitHubAnswer:
    comment = asked.state.comment(_stored_request(asked).number, asked.asker, asked.body["body"])
    return GitHubAnswer(201, asked.documents.comment(comment))


def _comment(asked: GitHubQuestion) -> GitHubAnswer:
    return GitHubAnswer(200, asked.documents.comment(_stored_comment(asked)))


def _change_comment(asked: GitHubQuestion) -> GitHubAnswer:
    comment = _stored_comment(asked)
    asked.state.change(comment, asked.body["body"])
    return GitHubAnswer(200, asked.documents.comment(comment))


def _reactions(asked: GitHubQuestion) -> GitHubAnswer:
    accounts = {account.id: account for account in (*asked.state.accounts.values(), *asked.state.tokens.values())}
    found = _stored_comment(asked).reactions.items()
    return GitHubAnswer(200, [asked.documents.reaction(number, accounts[who], said) for (who, said), number in found])


def _react(asked: GitHubQuestion) -> GitHubAnswer:
    content = asked.body["content"]
    number, is_new = asked.state.react(_stored_comment(asked), asked.asker, content)
    return GitHubAnswer(201 if is_new else 200, asked.documents.reaction(number, asked.asker, content))


def _set_status(asked: GitHubQuestion) -> GitHubAnswer:
    status = asked.state.state_of(asked.path["commit"], asked.asker, asked.body)
    return GitHubAnswer(201, asked.documents.status(status))


def _statuses(asked: GitHubQuestion) -> GitHubAnswer:
    found = [each for each in reversed(asked.state.statuses) if each.commit == asked.path["commit"]]
    return GitHubAnswer(200, [asked.documents.status(status) for status in found])


def _start_check(asked: GitHubQuestion) -> GitHubAnswer:
    _only_an_app(asked)
    return GitHubAnswer(201, asked.documents.check_run(asked.state.start_check(asked.body)))


def _change_check(asked: GitHubQuestion) -> GitHubAnswer:
    _only_an_app(asked)
    run = _stored_run(asked)
    asked.state.change_check(run, asked.body)
    return GitHubAnswer(200, asked.documents.check_run(run))


def _checks(asked: GitHubQuestion) -> GitHubAnswer:
    runs = [asked.documents.check_run(run) for run in asked.state.latest_checks(asked.path["commit"]).values()]
    return GitHubAnswer(200, {"total_count": len(runs), "check_runs": runs})


def _annotations(asked: GitHubQuestion) -> GitHubAnswer:
    run = _stored_run(asked)
    return GitHubAnswer(200, [asked.documents.annotation(run, said) for said in run.annotations])


def _only_an_app(asked: GitHubQuestion) -> None:
    if not asked.asker.is_bot:
        raise GitHubErrorAnswer(403, "You must authenticate via a GitHub App.")


def _stored_request(asked: GitHubQuestion) -> StoredRequest:
    request = asked.state.requests.get(asked.number("number"))
    if request is None:
        raise GitHubErrorAnswer(404, "Not Found")
    return request


def _stored_comment(asked: GitHubQuestion) -> StoredComment:
    comment = asked.state.comments.get(asked.number("comment"))
    if comment is None:
        raise GitHubErrorAnswer(404, "Not Found")
    return comment


def _stored_run(asked: GitHubQuestion) -> StoredCheckRun:
    run = asked.state.check_runs.get(asked.number("run"))
    if run is None:
        raise GitHubErrorAnswer(404, "Not Found")
    return run


def _created(request: StoredRequest) -> tuple[float, int]:
    return request.created_at_s, request.number


def _updated(request: StoredRequest) -> tuple[float, int]:
    return request.updated_at_s, request.number


_REPOSITORY: Final = r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)"
_TABLE: Final[Sequence[tuple[str, str, Callable[[GitHubQuestion], GitHubAnswer]]]] = (
    ("GET", "/user", _user),
    ("GET", "/app", _app),
    ("POST", r"/app/installations/(?P<installation>\d+)/access_tokens", _access_token),
    ("GET", f"{_REPOSITORY}/pulls", _requests),
    ("GET", rf"{_REPOSITORY}/pulls/(?P<number>\d+)", _request),
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
    ("POST", f"{_REPOSITORY}/check-runs", _start_check),
    ("PATCH", rf"{_REPOSITORY}/check-runs/(?P<run>\d+)", _change_check),
    ("GET", rf"{_REPOSITORY}/check-runs/(?P<run>\d+)/annotations", _annotations),
    ("GET", rf"{_REPOSITORY}/commits/(?P<commit>\w+)/check-runs", _checks),
)
ROUTES: Final = tuple((method, re.compile(pattern), answer) for method, pattern, answer in _TABLE)
