"""The pages of the sandbox's forge: what they show, what their buttons do, and what hostile text and sites cannot."""

import re
from html.parser import HTMLParser

import pytest

from tests.providers.sim.forge.conftest import REQUEST, HostedWorld, PageBrowser, Shown

MARKUP = '<script>alert("x")</script><img src=x onerror=alert(1)>"\'>'


@pytest.fixture
def head(world: HostedWorld) -> str:
    """The head of an open request, number 1."""
    made = world.push("more", {"pools.yaml": "a: 1\nb: 3\nc: 3\n"}, "More GPUs")
    world.hosted.look()
    return made


class _Tags(HTMLParser):
    """Every tag and attribute of a page, and whether tags are closed in turn."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


PAGE = "html head meta title link body header main section article form textarea label select option button"
MARKDOWN = "a span h1 h2 h3 p div b details summary code pre table thead tbody tr th td ul ol li strong em blockquote"
HARMLESS = frozenset(f"{PAGE} {MARKDOWN}".split())


def harmless(shown: Shown) -> bool:
    """Whether a page has no tag that loads, runs or frames anything, no handler of events, and none left open."""
    tags = _Tags(shown.text)
    assert tags.open == []
    return tags.names <= HARMLESS and not {it for it in tags.attributes if it.startswith("on") or it == "style"}


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_a_forge_without_requests_says_how_to_open_one(browser: PageBrowser) -> None:
    assert browser.read("/").headers["Location"] == "/acme/fleet/pulls"
    assert "git push -u origin more-gpus" in browser.read("/acme/fleet/pulls").words


def test_the_list_has_state_and_status_of_each(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    world.push("other", {"other.yaml": "x: 1\n"}, "Another")
    world.hosted.look()
    world.state.close(2)
    output = {"title": "would come into force", "summary": "would come into force"}
    said = {"head_sha": head, "name": "muster/one", "status": "completed", "conclusion": "success", "output": output}
    world.state.start_check(said)
    text = browser.read("/acme/fleet/pulls").words
    assert re.search(r"open More GPUs #1 more by ada, \S+ success muster/one would come into force", text)
    assert re.search(r"closed Another #2 other by ada, \S+ no status yet", text)


def test_a_page_has_the_diff_and_waits_for_a_status(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    page = browser.read()
    assert f"open ada: more ({head[:12]}) into main" in page.words
    assert 'http-equiv="refresh"' in page.text
    assert "pools.yaml modified" in page.words
    assert "-b: 2 2 +b: 3" in page.words
    bot = world.state.bot
    assert bot
    world.state.state_of(head, bot, {"state": "error", "context": "muster/one", "description": "is invalid"})
    page = browser.read()
    assert "failure muster/one is invalid" in page.words
    assert 'http-equiv="refresh"' not in page.text
    assert harmless(page)
    browser.press("merge")
    assert 'http-equiv="refresh"' in browser.read().text, "nothing is stated of the merge commit yet"
    world.clock.advance(61)
    assert 'http-equiv="refresh"' not in browser.read().text, "nobody seems to be there"


def test_annotations_stand_in_the_list_and_at_their_lines(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    note = {"path": "pools.yaml", "start_line": 2, "end_line": 2, "annotation_level": "failure", "message": "Not 3"}
    far = note | {"path": "teams.yaml", "message": "Far away"}
    output = {"title": "is invalid", "summary": "is invalid", "annotations": [note, far]}
    said = {"head_sha": head, "name": "muster/one", "status": "completed", "conclusion": "failure", "output": output}
    world.state.start_check(said)
    text = browser.read().words
    assert "failure muster/one is invalid pools.yaml:2 Not 3 teams.yaml:2 Far away" in text
    assert "2 +b: 3 Not 3 3 c: 3" in text


def test_the_conversation_is_in_order(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert head
    ada, bot = world.state.accounts["ada"], world.state.bot
    asked = world.state.comment(1, ada, "/muster plan")
    assert bot
    world.state.react(asked, bot, "+1")
    world.state.comment(1, bot, "<!-- muster -->\n\n## `one`: **fine**\n")
    world.state.review(1, world.state.accounts["grace"], "APPROVED")
    text = browser.read().words
    assert re.search(
        rf"ada commented, \S+ 👍 /muster plan muster\[bot\] commented, \S+ one : fine grace approved {head[:12]}", text
    )


def test_a_commit_leads_to_its_request_or_has_a_page_of_its_own(
    browser: PageBrowser, world: HostedWorld, head: str
) -> None:
    found = browser.read(f"/acme/fleet/commit/{head}")
    assert (found.status, found.headers["Location"]) == (303, REQUEST)

    first = world.on_the_server("refs/heads/main")
    world.state.state_of(first, world.state.owner, {"state": "success", "context": "muster/one", "description": "done"})
    page = browser.read(f"/acme/fleet/commit/{first}")
    assert re.search(
        rf"The fleet {first[:12]} Muster sandbox, \S+ Statuses success muster/one done Changes", page.words
    )
    assert "pools.yaml added" in page.words
    assert harmless(page)
    assert browser.read(f"/acme/fleet/commit/{'1' * 40}").status == 404


def test_a_page_that_is_not_there(browser: PageBrowser, head: str) -> None:
    assert head
    for path in ("/acme/fleet/pull/2", "/acme/fleet/pull/" + "1" * 5000, f"{REQUEST}/", f"{REQUEST}/merge", "/x"):
        assert browser.read(path).status == 404
    assert browser.press("explode").status == 404
    assert browser.ask("DELETE", REQUEST).status == 405
    assert browser.ask("GET", "/api/v3/user").status == 401, "the API beside them is what it was"


# -- buttons ----------------------------------------------------------------------------------------------------------


def test_a_comment_is_one_of_who_writes_it(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert head
    done = browser.press("comment", "grace", text="Looks good.\r\n/muster plan")
    assert (done.status, done.headers["Location"]) == (303, REQUEST)
    (comment,) = world.state.comments.values()
    assert comment.author == world.state.accounts["grace"]
    assert comment.body == "Looks good.\n/muster plan"
    assert world.told[-1] == ("issue_comment", "created", 1)
    blank = browser.press("comment", text=" ")
    assert (blank.status, "Body cannot be blank" in blank.words) == (422, True)
    assert len(world.state.comments) == 1


def test_an_approval_is_of_the_head_and_by_somebody_else(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert browser.press("approve", "ada").status == 422
    assert world.state.reviews == {}
    assert browser.press("approve", "grace").status == 303
    (review,) = world.state.reviews.values()
    assert (review.state, review.commit, review.author) == ("APPROVED", head, world.state.accounts["grace"])
    assert world.told[-1] == ("pull_request_review", "submitted", 1)


def test_a_merge_merges(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert browser.press("merge", "visitor").status == 403
    assert world.state.requests[1].closed_at_s is None
    assert browser.press("merge", "grace").status == 303
    merged = world.on_the_server("refs/heads/main")
    assert world.state.requests[1].merge_commit == merged
    page = browser.read()
    assert f"merged ada: more ({head[:12]}) into main , as {merged[:12]}" in page.words
    assert f'action="{REQUEST}/merge"' not in page.text
    assert browser.press("merge").status == 405
    assert browser.press("approve", "grace").status == 422


def test_a_conflict_is_told_of(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert head
    world.git("checkout", "--quiet", "main")
    world.repository.write({"pools.yaml": "a: 1\nb: 4\nc: 3\n"})
    world.repository.push("Meanwhile")
    refused = browser.press("merge")
    assert (refused.status, "conflicts in pools.yaml" in refused.words) == (405, True)
    assert f'href="{REQUEST}"' in refused.text


def test_a_request_is_closed_by_its_author_or_who_may_write(
    browser: PageBrowser, world: HostedWorld, head: str
) -> None:
    assert head
    assert browser.press("close", "visitor").status == 403
    assert browser.press("close", "ada").status == 303
    assert world.state.requests[1].closed_at_s == world.clock.now()
    assert world.told[-1] == ("pull_request", "closed", 1)
    assert browser.press("close", "ada").status == 422


@pytest.mark.parametrize("who", ["", "nobody", "acme", "muster[bot]"])
def test_nobody_presses_as_who_is_no_person(browser: PageBrowser, head: str, who: str) -> None:
    assert head
    assert browser.press("merge", who).status == 422


def test_a_push_that_is_told_of_is_answered_with_its_request(browser: PageBrowser, world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    told = browser.ask("POST", "/-/pushed", Origin=browser.origin)
    assert told.text == f"Pull request 1: {browser.origin}{REQUEST}\n"
    assert browser.ask("POST", "/-/pushed", Origin=browser.origin).text == ""


# -- what others cannot do --------------------------------------------------------------------------------------------


def test_hostile_titles_branches_files_and_comments_are_text(browser: PageBrowser, world: HostedWorld) -> None:
    branch = "a<b>&\"'-x"
    world.push(branch, {f"<i>{MARKUP.replace('/', '')}.yaml": f"{MARKUP}: 1\n"}, MARKUP)
    (request,) = world.hosted.look()
    bot = world.state.bot
    assert bot
    note = {"path": MARKUP, "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": MARKUP}
    output = {"title": MARKUP, "summary": MARKUP, "annotations": [note]}
    said = {"head_sha": request.head, "name": MARKUP, "status": "completed", "output": output}
    world.state.start_check(said)
    world.state.comment(1, bot, f"{MARKUP}\n\n[x](javascript:alert(1)) ![y](http://example.com/y.png)\n\n</main>")
    world.state.comment(1, world.state.accounts["visitor"], f"<details><summary>x</summary>\n\n```{MARKUP}\n{MARKUP}")
    for page in (browser.read(), browser.read("/acme/fleet/pulls")):
        assert page.status == 200
        assert harmless(page)
        assert "<script" not in page.text
        assert branch.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:9] in page.text


@pytest.mark.parametrize("origin", ["", "null", "https://evil.example.com", "http://127.0.0.1", "http://127.0.0.1:1"])
def test_a_form_of_another_site_does_nothing(browser: PageBrowser, world: HostedWorld, head: str, origin: str) -> None:
    assert head
    sent = {"Origin": origin} if origin else {}
    for path in (f"{REQUEST}/merge", f"{REQUEST}/comment", "/-/pushed"):
        refused = browser.ask("POST", path, "as=ada&text=x", **sent)
        assert (refused.status, "comes from another site" in refused.words) == (403, True)
    assert world.state.requests[1].closed_at_s is None
    assert world.state.comments == {}


@pytest.mark.parametrize("host", ["evil.example.com", "127.0.0.1", "127.0.0.1:1", "localhost.example.com:{port}"])
def test_another_name_for_this_machine_shows_nothing(browser: PageBrowser, head: str, host: str) -> None:
    """What a site's own name for 127.0.0.1 would let its scripts read."""
    name = host.format(port=browser.port)
    assert browser.ask("GET", REQUEST, Host=name).status == 421
    assert browser.ask("POST", f"{REQUEST}/merge", "as=ada", Host=name, Origin=f"http://{name}").status == 421
    assert head[:12] not in browser.ask("GET", REQUEST, Host=name).text
    assert browser.ask("GET", REQUEST, Host=f"localhost:{browser.port}").status == 200


def test_pages_allow_no_script_and_nothing_from_elsewhere(browser: PageBrowser, head: str) -> None:
    assert head
    for path in (REQUEST, "/acme/fleet/pulls", "/-/style.css", "/nothing", "/"):
        headers = browser.read(path).headers
        policy = dict(it.strip().split(" ", 1) for it in headers["Content-Security-Policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "style-src": "'self'",
            "form-action": "'self'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert "url(" not in browser.read("/-/style.css").text


def test_a_form_is_bounded(browser: PageBrowser, world: HostedWorld, head: str) -> None:
    assert head
    many = "&".join(f"x{number}=1" for number in range(50))
    assert browser.ask("POST", f"{REQUEST}/comment", many, Origin=browser.origin).status == 400
    assert browser.press("comment", text="x" * 70_000).status == 422
    assert browser.press("comment", text="x" * 2_000_000).status == 413
    assert world.state.comments == {}
