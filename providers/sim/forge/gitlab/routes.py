"""The questions that GitLab's REST API takes (version 4)."""

import base64
import re
from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import unquote

from providers.sim.forge.contents import ForgeErrorAnswer
from providers.sim.forge.dialect import (
    Document,
    ForgeAnswer,
    ForgeAsked,
    ForgeDialect,
    ForgeQuestion,
    PageRule,
    Rules,
)
from providers.sim.forge.gitlab.documents import GitLabDocuments, stamp
from providers.sim.forge.state import (
    ForgeAccount,
    ForgeState,
    StoredComment,
)

_LEVELS: Final = {"admin": 40, "maintain": 40, "write": 30, "triage": 20, "read": 10}
_QUICK_ACTION: Final = re.compile(r"^/\w+.*\n?", re.MULTILINE)


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
    state, wanted = asked.query.get("state", "all"), ("target_branch", "source_branch")
    found = [
        each
        for each in documents
        if state in {"all", each["state"]} and all(asked.query.get(it, each[it]) == each[it] for it in wanted)
    ]
    by = asked.query.get("order_by", "created_at")
    found.sort(key=lambda each: (each[by], each["iid"]), reverse=asked.query.get("sort", "desc") == "desc")
    return ForgeAnswer(200, found)


def _request(asked: GitLabQuestion) -> ForgeAnswer:
    return ForgeAnswer(200, asked.documents.request(asked.request(), whole=True))


def _propose(asked: GitLabQuestion) -> ForgeAnswer:
    said = asked.body
    made = asked.state.propose(asked.asker, said["source_branch"], said["target_branch"], said["title"])
    return ForgeAnswer(201, asked.documents.request(made, whole=True))


def _change_request(asked: GitLabQuestion) -> ForgeAnswer:
    request = asked.request()
    if asked.body.get("state_event") == "close":
        asked.state.close(request.number)
    return ForgeAnswer(200, asked.documents.request(request, whole=True))


def _file(asked: GitLabQuestion) -> ForgeAnswer:
    contents, path, ref = asked.state.contents, unquote(asked.path["file"]), asked.query["ref"]
    content = contents.read(ref, path)
    if content is None:
        raise ForgeErrorAnswer(404, "404 File Not Found")
    return ForgeAnswer(200, asked.documents.file(path, ref, content, contents.commit_of(ref)))


def _commit_file(asked: GitLabQuestion) -> ForgeAnswer:
    """Makes the branch with the commit where a start is named; without one the branch has to be there."""
    said, contents = asked.body, asked.state.contents
    if "start_sha" in said:
        if contents.commit_of(said["branch"]):
            raise ForgeErrorAnswer(400, f"A branch called '{said['branch']}' already exists.")
        contents.branch(said["branch"], said["start_sha"])
    (action,) = said["actions"]
    content = base64.b64decode(action["content"], validate=True)
    made = asked.state.write_file(said["branch"], action["file_path"], "", content, said["commit_message"])
    return ForgeAnswer(201, asked.documents.commit(made, said["commit_message"], asked.state.clock.now()))


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
    return ForgeAnswer(200, [asked.documents.reviewer(each) for each in last.values()], whole=True)


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
        ("POST", f"{_PROJECT}/merge_requests", _propose),
        ("GET", _REQUEST, _request),
        ("PUT", _REQUEST, _change_request),
        ("GET", rf"{_PROJECT}/repository/files/(?P<file>[^/]+)", _file),
        ("POST", f"{_PROJECT}/repository/commits", _commit_file),
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
