"""The page in a real Chromium: every page, live, by keyboard, in the dark, on a phone, and for a screen reader."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.web.access import KubeGate
from tests.agent.web import stage
from tests.agent.web.test_access import api
from tests.agent.web.test_pages import ADDRESSES
from tests.agent.web.test_server import PageSite
from tests.support.fleets import gang

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
WITHIN_MS = 20_000
SERIOUS = {"serious", "critical"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Skips where there is no Chromium; in CI that is an error, since nobody would notice."""
    if not CHROMIUM:
        missing = "there is no chromium here (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go; CI keeps what is in `MUSTER_ARTIFACTS`."""
    kept = os.environ.get("MUSTER_ARTIFACTS")
    folder = Path(kept) / "page" if kept else tmp_path_factory.mktemp("page")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def site() -> Iterator[PageSite]:
    made = PageSite()
    yield made
    made.listener.stop()


class Tab:
    """A page of the browser, with all that it complained about."""

    def __init__(self, browser: Any, site: PageSite, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WITHIN_MS)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.root = f"http://127.0.0.1:{site.listener.port}"

    def open(self, address: str) -> Any:
        self.page.goto(f"{self.root}{address}", wait_until="load")
        return self.page

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def tab(browser: Any, site: PageSite) -> Iterator[Tab]:
    made = Tab(browser, site)
    yield made
    made.close()


def name_of(address: str) -> str:
    return re.sub(r"\W+", "-", address).strip("-") or "overview"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_reads_well(browser: Any, site: PageSite, shots: Path, scheme: str, width: int) -> None:
    """Nothing is blocked by the policy, nothing is wider than the screen, and axe finds nothing serious."""
    from axe_playwright_python.sync_playwright import Axe

    tab, axe = Tab(browser, site, color_scheme=scheme, viewport={"width": width, "height": 900}), Axe()
    wide, found = [], []
    for address in ADDRESSES:
        if address == "/gangs/blue/blue-1":
            continue  # the same page as of another gang
        page = tab.open(address)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(address)
        page.screenshot(path=shots / f"{name_of(address)}-{scheme}-{width}.png", full_page=True)
        for it in axe.run(page).response["violations"]:
            if it["impact"] in SERIOUS:
                found.append((address, it["id"], [node["html"][:120] for node in it["nodes"]][:3]))
    assert wide == []
    assert found == []
    assert tab.complaints == []
    tab.close()


def test_a_page_that_is_open_follows(browser: Any) -> None:
    site = PageSite()
    tab = Tab(browser, site)
    page = tab.open("/gangs?state=Pending")
    page.get_by_text("1 found").wait_for()
    page.get_by_label("Name").fill("train")
    site.world.waits(gang("blue-9", queue="q-blue", namespace="blue"))
    site.turn()
    page.get_by_text("2 found").wait_for()
    page.get_by_role("link", name="blue/blue-9").wait_for()
    assert page.get_by_label("Name").input_value() == "train", "what is being typed stays"
    assert page.locator("#live").inner_text() == "up to date"
    tab.close()
    site.listener.stop()


def test_only_what_has_changed_is_touched(browser: Any) -> None:
    site = PageSite()
    tab = Tab(browser, site)
    page = tab.open("/machines")
    page.evaluate("document.getElementById('m2').firstElementChild.dataset.kept = 'yes'")
    site.world.claims["m0"] = replace(site.world.claims["m0"], deleting=True)
    site.turn()
    page.locator("#m1 .s-Terminating").wait_for()
    assert page.evaluate("document.getElementById('m2').firstElementChild.dataset.kept") == "yes"
    tab.close()
    site.listener.stop()


def test_a_way_through_by_links(tab: Tab) -> None:
    page = tab.open("/")
    page.get_by_role("link", name="Queues").click()
    page.get_by_role("link", name="q-red").click()
    page.get_by_role("link", name="red/red-0").click()
    page.get_by_role("heading", name="red/red-0").wait_for()
    page.get_by_role("link", name="m0", exact=True).click()
    page.get_by_role("heading", name="m0").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Timeline").wait_for()
    assert tab.complaints == []


def test_a_choice_is_an_address(tab: Tab) -> None:
    page = tab.open("/machines")
    page.get_by_label("Colour by").select_option("team")
    page.wait_for_url("**/machines?by=team**")
    page.locator(".map.by-team").first.wait_for()
    assert page.locator(".legend").inner_text().split()[:2] == ["blue", "1"]


def test_by_keyboard_alone(tab: Tab) -> None:
    page = tab.open("/machines")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.locator(".map .t").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('href')").endswith("machines/m1")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="stranger").wait_for()


def test_words_without_an_end_make_no_page_wider_than_a_telephone(browser: Any, shots: Path) -> None:
    """A selector's value that no machine has stands in the reason, the explanation, the timeline and the advice."""
    site = PageSite()
    it = site.world.gang("blue-1")
    site.world.gangs[it.uid] = replace(it, message=f"selector {'long-' * 20}={'x' * 63}: it has no such label")
    site.turn()
    tab = Tab(browser, site, viewport={"width": 390, "height": 900})
    for address in ("/", "/gangs", "/gangs/blue/blue-1", "/queues/q-blue"):
        assert tab.open(address).evaluate("document.documentElement.scrollWidth") <= 390, address
    tab.open("/gangs/blue/blue-1").screenshot(path=shots / "endless-390.png", full_page=True)
    explained = tab.page.locator(".why-lines")
    assert explained.evaluate("it => it.scrollWidth <= it.clientWidth"), "its lines are broken, not hidden"
    tab.close()
    site.listener.stop()


def test_hostile_names_do_nothing(browser: Any, shots: Path) -> None:
    site = PageSite()
    stage.hostile(site.world)
    site.turn()
    tab = Tab(browser, site)
    for address in ("/", "/gangs", "/machines", "/queues/q-red"):
        page = tab.open(address)
        page.wait_for_timeout(50)
    page.screenshot(path=shots / "hostile.png", full_page=True)
    assert "<img src=x onerror=alert(1)>" in tab.open("/gangs").inner_text("main")
    assert tab.complaints == []
    tab.close()
    site.listener.stop()


def test_a_token_opens_the_page(browser: Any) -> None:
    site = PageSite(KubeGate(api(ann=["red"]), lambda: 0.0))
    tab = Tab(browser, site)
    page = tab.open("/gangs")
    page.get_by_label("Token").fill("token-of-ann")
    page.get_by_role("button", name="Look").click()
    page.get_by_role("heading", name="Waiting").wait_for()
    assert "ann" in page.locator(".who").inner_text()
    assert page.evaluate("document.cookie") == ""
    tab.close()
    site.listener.stop()
