"""The pages of a pretended forge for a person: its pull requests, what is said of them, and buttons.

They need no JavaScript, and allow none. A form is taken only from a page of this server, read on this machine: the
address that was asked for has to be a loopback one of this port, and the form's origin has to be it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from aiohttp import web

from providers.sim.forge.contents import ForgeErrorAnswer
from providers.sim.forge.hosting import HostedRepository
from providers.sim.forge.rendering import STYLE, page
from providers.sim.forge.state import ForgeAccount, StoredRequest

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MAY_MERGE: Final = frozenset({"admin", "maintain", "write"})
_THUMBS: Final = {"+1": "\N{THUMBS UP SIGN}", "-1": "\N{THUMBS DOWN SIGN}"}
_FIELDS_MOST: Final = 10
GHOST: Final = "ghost"
AWAITED_S: Final = 60.0
"""So long a page loads itself anew, after a push or a merge of which nothing is stated yet."""


class _Note(NamedTuple):
    path: str
    line: int
    message: str


class _ShownVerdict(NamedTuple):
    """A commit status or a check; `state` is success, failure or pending."""

    name: str
    state: str
    summary: str
    annotations: Sequence[_Note] = ()


class _Row(NamedTuple):
    request: StoredRequest
    state: str
    author: str
    verdicts: Sequence[_ShownVerdict]


class _ShownWords(NamedTuple):
    id: int
    anchor: str
    author: str
    at_s: float
    text: str
    approval: str = ""
    reactions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ForgePage:
    """Answers what is asked beside the API. Who presses a button says as whom: everybody here is the sandbox's user."""

    repository: HostedRepository

    def answer(self, request: web.BaseRequest, sent: bytes) -> web.Response:
        """Returns the page that is asked for, or does what a form asks for; an error is a page as well."""
        try:
            return self._answer(request, sent)
        except ForgeErrorAnswer as error:
            asked = self._asked(request.path)
            back = self._at(asked[0]) if asked and error.status != 404 else f"{self._here}/pulls"
            return self._shown("refused", error.status, message=error.message, back=back)

    def _answer(self, request: web.BaseRequest, sent: bytes) -> web.Response:
        if request.method not in {"GET", "HEAD", "POST"}:
            raise ForgeErrorAnswer(405, "Only GET, HEAD and POST are answered.")
        is_form, path = request.method == "POST", request.path
        _check_address(request, is_form=is_form)
        if asked := self._asked(path):
            return self._pressed(*asked, _form(sent)) if is_form else self._one(*asked)
        if is_form and path == "/-/pushed":
            told = (
                f"Pull request {it.number}: {request.url.origin()}{self._at(it)}\n" for it in self.repository.look()
            )
            return web.Response(text="".join(told), headers=_HEADERS)
        if not is_form and path == "/-/style.css":
            return web.Response(text=STYLE, content_type="text/css", headers=_HEADERS)
        if not is_form and path == f"{self._here}/pulls":
            return self._listed()
        if not is_form and (found := re.fullmatch(rf"{re.escape(self._here)}/commit/([0-9a-f]{{40}})", path)):
            return self._commit(found[1])
        if not is_form and path in {"/", self._here}:
            return _see(f"{self._here}/pulls")
        raise ForgeErrorAnswer(404, "There is no such page.")

    def _asked(self, path: str) -> tuple[StoredRequest, str] | None:
        """The request whose page this is, and the button behind it."""
        found = re.fullmatch(rf"{re.escape(self._here)}/pull/([0-9]{{1,9}})(?:/([a-z]+))?", path)
        request = self.repository.state.requests.get(int(found[1])) if found else None
        return (request, found[2] or "") if found and request else None

    def _pressed(self, request: StoredRequest, button: str, form: Mapping[str, str]) -> web.Response:
        account = self.repository.state.accounts.get(form.get("as", ""))
        if button not in _ACTIONS:
            raise ForgeErrorAnswer(404, "There is no such button.")
        if account is None or account.login not in self._people():
            raise ForgeErrorAnswer(422, "Nobody of this name may press buttons here.")
        _ACTIONS[button](self.repository, request, account, form.get("text", ""))
        return _see(self._at(request))

    @property
    def _here(self) -> str:
        return f"/{self._name}"

    @property
    def _name(self) -> str:
        return f"{self.repository.state.owner.login}/{self.repository.state.name}"

    def _at(self, request: StoredRequest) -> str:
        return f"{self._here}/pull/{request.number}"

    def _people(self) -> Sequence[str]:
        """Those that stand for people: all that have a role, but for the owner."""
        state = self.repository.state
        return [login for login in state.roles if login != state.owner.login]

    def _shown(self, template: str, http_status: int = 200, **values: Any) -> web.Response:
        text = page(template, repository=self._name, here=self._here, **values)
        return web.Response(status=http_status, text=text, content_type="text/html", headers=_HEADERS)

    def _listed(self) -> web.Response:
        requests = self.repository.state.requests.values()
        rows = [self._row(it) for it in sorted(requests, key=lambda it: (it.closed_at_s is not None, -it.number))]
        return self._shown("list", rows=rows)

    def _one(self, request: StoredRequest, button: str) -> web.Response:
        if button:
            raise ForgeErrorAnswer(404, "A button is pressed, not read.")
        row = self._row(request)
        notes: dict[tuple[str, int], list[str]] = {}
        for note in (note for verdict in row.verdicts for note in verdict.annotations):
            notes.setdefault((note.path, note.line), []).append(note.message)
        return self._shown(
            "request",
            row=row,
            conversation=sorted([*self._comments(request), *self._reviews(request)]),
            files=list(self.repository.diff(request)),
            notes=notes,
            people=self._people(),
            someone_else=next((login for login in self._people() if login != row.author), ""),
            awaited=self._awaited(row),
        )

    def _commit(self, commit: str) -> web.Response:
        """The page of a commit: of the request that it is the head or the merge of, or else its own."""
        requests = self.repository.state.requests.values()
        if found := next((it for it in requests if commit in (it.head, it.merge_commit)), None):
            return _see(self._at(found))
        shown = self.repository.commit(commit)
        if shown is None:
            raise ForgeErrorAnswer(404, "There is no such commit.")
        return self._shown("commit", commit=shown, files=shown.files, verdicts_of=list(self._verdicts(commit)))

    def _awaited(self, row: _Row) -> bool:
        """Whether the agent is likely to say something soon."""
        commit = row.request.merge_commit if row.state == "merged" else row.request.head
        changed_s = self.repository.state.clock.now() - row.request.updated_at_s
        return row.state != "closed" and changed_s < AWAITED_S and not any(self._verdicts(commit or ""))

    def _row(self, request: StoredRequest) -> _Row:
        closed = "closed" if request.merged_at_s is None else "merged"
        state = "open" if request.closed_at_s is None else closed
        commits = [request.head] + ([request.merge_commit] if state == "merged" and request.merge_commit else [])
        found = {it.name: it for commit in commits for it in self._verdicts(commit)}
        return _Row(request, state, _name_of(request.author), tuple(found.values()))

    def _verdicts(self, commit: str) -> Iterator[_ShownVerdict]:
        """Yields what is stated of a commit; a later one of a name counts."""
        state = self.repository.state
        for status in state.latest_statuses(commit).values():
            shown = "failure" if status.state == "error" else status.state
            yield _ShownVerdict(status.context, shown, status.description or "")
        for run in state.latest_checks(commit).values():
            good = "success" if run.conclusion == "success" else "failure"
            notes = [_Note(it["path"], it["start_line"], it["message"]) for it in run.annotations]
            yield _ShownVerdict(run.name, good if run.status == "completed" else "pending", run.title, notes)

    def _comments(self, request: StoredRequest) -> Iterator[_ShownWords]:
        for it in self.repository.state.comments.values():
            if it.number == request.number:
                thumbs = [_THUMBS[content] for _, content in it.reactions if content in _THUMBS]
                anchor = f"issuecomment-{it.id}"
                yield _ShownWords(it.id, anchor, _name_of(it.author), it.created_at_s, it.body, reactions=thumbs)

    def _reviews(self, request: StoredRequest) -> Iterator[_ShownWords]:
        for it in self.repository.state.reviews.values():
            if it.number == request.number:
                words = f"{it.state.lower().replace('_', ' ')} {it.commit[:12]}"
                yield _ShownWords(
                    it.id, f"pullrequestreview-{it.id}", _name_of(it.author), it.submitted_at_s, "", words
                )


def _see(path: str) -> web.Response:
    return web.Response(status=303, headers={**_HEADERS, "Location": path})


def _name_of(account: ForgeAccount | None) -> str:
    return GHOST if account is None else account.login


def _check_address(request: web.BaseRequest, *, is_form: bool) -> None:
    """Refuses what another site has a browser ask for: by a name of its own for this machine, or by a form."""
    port = request.transport.get_extra_info("sockname")[1] if request.transport else 0
    if request.host not in {f"127.0.0.1:{port}", f"localhost:{port}"}:
        raise ForgeErrorAnswer(421, "These pages are read at 127.0.0.1 or localhost.")
    if is_form and request.headers.get("Origin") != f"{request.scheme}://{request.host}":
        raise ForgeErrorAnswer(403, "The form comes from another site.")


def _form(sent: bytes) -> Mapping[str, str]:
    try:
        return dict(parse_qsl(sent.decode("utf-8"), max_num_fields=_FIELDS_MOST))
    except ValueError as error:  # no UTF-8, or more fields than any form here has
        raise ForgeErrorAnswer(400, "This is no form of ours.") from error


# -- buttons ----------------------------------------------------------------------------------------------------------


def _comment(repository: HostedRepository, request: StoredRequest, account: ForgeAccount, text: str) -> None:
    repository.state.comment(request.number, account, text.replace("\r\n", "\n"))
    repository.deliver("issue_comment", "created", request.number)


def _approve(repository: HostedRepository, request: StoredRequest, account: ForgeAccount, _text: str) -> None:
    if account == request.author:
        raise ForgeErrorAnswer(422, "Can not approve your own pull request")
    _still_open(request)
    repository.state.review(request.number, account, "APPROVED")
    repository.deliver("pull_request_review", "submitted", request.number)


def _merge(repository: HostedRepository, request: StoredRequest, account: ForgeAccount, _text: str) -> None:
    _may_write(repository, account)
    repository.merge(request.number, account)


def _close(repository: HostedRepository, request: StoredRequest, account: ForgeAccount, _text: str) -> None:
    if account != request.author:
        _may_write(repository, account)
    _still_open(request)
    repository.state.close(request.number)
    repository.deliver("pull_request", "closed", request.number)


def _may_write(repository: HostedRepository, account: ForgeAccount) -> None:
    if repository.state.roles[account.login] not in _MAY_MERGE:
        raise ForgeErrorAnswer(403, f"{account.login} may not write in this repository.")


def _still_open(request: StoredRequest) -> None:
    if request.closed_at_s is not None:
        raise ForgeErrorAnswer(422, "The pull request is closed.")


_ACTIONS: Final[Mapping[str, Callable[[HostedRepository, StoredRequest, ForgeAccount, str], None]]] = {
    "comment": _comment,
    "approve": _approve,
    "merge": _merge,
    "close": _close,
}
