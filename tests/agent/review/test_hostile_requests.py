"""Hostile requests over the wire: what they say is text in comment, status and log, and the next one is answered."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from agent.sandbox.repository import git
from providers.clock import SystemClock
from providers.sim.forge import ForgeServer, ForgeState, GitHubDialect
from tests.agent.processes import AgentPlace, until
from tests.agent.review.test_review_process import bodies, settings
from tests.agent.scenes import files, pool, queue, team

MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![pixel](https://evil.example/x.png)",
    "[click](javascript:alert(1))",
    "https://evil.example/look",
    "@everyone @acme/owners",
    "fixes #1",
    "```\n# Forged heading",
    "~~~\n</details>",
    "<!-- /muster-section -->",
    "<!-- muster-section test head=x -->",
    "\x1b[31mred\x1b[0m\x07",
    "\u202egnp.exe",
    "/muster approve",
    "| a | b |\n|---|---|",
)
ONE_BY_ONE = "\n".join(f"    k{number}: {text!r}" for number, text in enumerate(MARKUP))
POISONED = "apiVersion: muster.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}\n"
REQUESTS = {
    "unknown keys, names and values": {
        f"p{number}.yaml": POISONED.format(kind="NodePool", name=repr(text), spec=f"  {text!r}: {text!r}\n{ONE_BY_ONE}")
        for number, text in enumerate(MARKUP)
    },
    "kinds": {"k.yaml": "\n---\n".join(POISONED.format(kind=repr(it), name="a", spec="  {}") for it in MARKUP)},
    "names of files": {
        "pools/<img src=x onerror=alert(1)>.yaml": "kind: Nothing\n",
        "pools/@everyone ```.yaml": "kind: Nothing\n",
        "pools/\x1b[31m.yaml": "kind: Nothing\n",
        "pools/\u202egnp.yaml": "kind: Nothing\n",
        "<!-- -->.yaml": "kind: Nothing\n",
    },
    "ten megabytes in one file": {"big.yaml": "# " + "x" * 10_000_000 + "\nkind: Nothing\n"},
    "ten megabytes in many files": {f"d/{n}.yaml": f"# {'y' * 50_000}\nkind: Nothing\n" for n in range(200)},
    "deep and wide": {"deep.yaml": "a: " + "[" * 5_000 + "]" * 5_000 + "\n", "bomb.yaml": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)))},
    "no text": {"blob.yaml": "\x00\x01\x02", "latin.yaml": "name: \xff\xfe"},
}  # fmt: skip


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    state = ForgeState("acme", "fleet", SystemClock())
    state.account("muster-bot", "write", token="t0ken")
    monkeypatch.setenv("FORGE_TOKEN", "t0ken")
    with ForgeServer(state, GitHubDialect) as server:
        yield server


def pushed(clone: Path, number: int, tree: dict[str, str], message: str) -> str:
    """A request's head with these files beside those of main."""
    git(clone, "checkout", "--quiet", "-B", f"change-{number}", "main")
    for path, text in tree.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(text.encode("latin-1" if "latin" in path else "utf-8"))
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", message)
    git(clone, "push", "--quiet", "origin", f"HEAD:refs/pull/{number}/head")
    head = git(clone, "rev-parse", "HEAD").strip()
    git(clone, "checkout", "--quiet", "--force", "main")
    return head


def inert(comment: str) -> None:
    """As a forge would show it, with HTML let through: nothing but what the agent itself writes is markup."""
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(comment)
    assert set(re.findall(r"<([a-z]+[0-9]?)[ >]", re.sub(r"<!--.*?-->", "", shown))) <= {
        *("p", "h1", "h2", "h3", "h4", "ul", "li", "pre", "code", "details", "summary", "strong", "em", "br", "hr"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert shown.count("<details>") == shown.count("</details>")
    assert comment.count("<!-- muster-section ") == comment.count("<!-- /muster-section -->") == 1
    words = re.sub(r"<(pre|code)\b.*?</\1>", "", shown, flags=re.DOTALL)
    assert not re.search(r"(^|[\s(])@\w", re.sub(r"<[^>]+>", "", words)), "nobody is called"
    assert not re.search(r"(^|\s)#\d", re.sub(r"<[^>]+>", "", words)), "no issue is linked"
    assert not re.search(r"https?://|\bwww\.", words), "no forge makes a link of it"
    assert "Forged heading</h1>" not in shown
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]", comment)
    assert len(comment) <= 65_536


def test_hostile_requests_leave_no_trace(
    place: AgentPlace, github: ForgeServer, capfd: pytest.CaptureFixture[str]
) -> None:
    running = place.start("first", review=settings(github))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    state, clone, applied = github.state, place.repository.clone, place.applied()
    ada = state.account("ada", "write")
    message = "\x1b]0;owned\x07 <img src=x> @everyone ``` [x](javascript:1)"
    for number, (title, tree) in enumerate(REQUESTS.items(), 1):
        head = pushed(clone, number, tree, message)
        request = state.open(f"{title} {MARKUP[0]} {MARKUP[5]} {MARKUP[11]}", ada, head)
        assert request.number == number
        until(lambda number=number: any(it.number == number for it in state.comments.values()), title)
        until(lambda head=head: state.latest_statuses(head), f"a status: {title}")
        (comment,) = [it.body for it in state.comments.values() if it.number == number]
        assert "would come into force" not in comment, title
        inert(comment)
        (status,) = state.latest_statuses(head).values()
        assert status.state == "failure"
        assert not re.search("[\x00-\x1f\u202e]", status.description or "")
    assert place.applied() == applied
    head = pushed(clone, len(REQUESTS) + 1, files(pool(), pool("more"), team(), queue()), "Honest")
    state.open("An honest one", ada, head)
    until(lambda: "would come into force" in bodies(github)[-1], "the next one is planned as ever")
    out, err = capfd.readouterr()
    assert "\x1b]0;" not in out + err, "nobody's terminal is told anything by a commit"
