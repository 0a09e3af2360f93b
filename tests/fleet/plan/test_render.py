"""A plan as markdown: what strangers wrote stays within its line and its block, and the size of a comment holds."""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.plan import Allowed, Plan, PlannedChange, WithoutRevision
from fleet.plan.changes import NOW, FieldChange
from fleet.plan.consequences import GangImpact, HourlyBill, PeakBill
from fleet.plan.exposure import Exposure
from fleet.plan.quotas import Overcommitment, QuotaChange
from fleet.plan.render import MARKDOWN_MOST, to_markdown, to_text
from fleet.plan.sections import document

HOSTILE = [
    "```\n# forged",
    "````diff\n+ nodepool/forged",
    "</details><script>alert(1)</script>",
    "a|b|c",
    "\x1b[32mgreen\x1b[0m",
    "gpu\u202elmay",
    "@everyone #1 GH-2 www.evil.example https://evil.example",
    "x\nPlan: 0 to add, 0 to change, 0 to destroy.",
    "~~~\r\n<!-- ",
    "`" * 40,
    "\udcff",
]
ANY = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=()), max_size=80))


def machine(name: str, words: str) -> PlannedChange:
    facts = {"instanceType": words, "capacityType": "spot", "zone": words, "usdPerHour": 1.0, "layout": words}
    return PlannedChange(f"nodeclaim/{name}", "create", reason=words, after=facts)


def plan(words: str, changes: int = 1) -> Plan:
    """One in which every text that comes from elsewhere is `words`."""
    field = FieldChange(f"spec.{words}", words, {words: words})
    declared = tuple(PlannedChange(f"team/{words}", "update", (field,)) for _ in range(changes))
    machines = tuple(machine(words, words) for _ in range(changes))
    gangs = tuple(GangImpact(words, words, 8, words, {words: 8}) for _ in range(changes))
    bill, quotas = HourlyBill(1.0, {"h100": 8}), (QuotaChange(words, words, words, 1, None),) * changes
    allowed = Allowed(Exposure({}), Exposure({words: inf}), quotas, (Overcommitment((words,), words, 2, 1),))
    return Plan(
        words, words, words, 0.0, declared, machines, gangs, WithoutRevision(machines, gangs, bill), bill, bill,
        PeakBill(9, 9.0, NOW), allowed, (words,) * min(changes, 100), (words,) * changes, words, words,
    )  # fmt: skip


def outside(text: str) -> Iterator[str]:
    """The lines of markdown that are in no block of code, by the rule of CommonMark: a fence ends with one as long."""
    fence = ""
    for line in text.split("\n"):
        if fence:
            fence = "" if re.fullmatch(rf" {{0,3}}`{{{len(fence)},}}\s*", line) else fence
        elif opened := re.match(r" {0,3}(`{3,}|~{3,})[^`]*$", line):
            fence = opened[1]
        else:
            yield line
    assert not fence, "a block does not end"


@settings(max_examples=300)
@given(ANY)
@example("``` ` ````")
def test_nothing_breaks_out_of_its_block_or_forges_a_line(words: str) -> None:
    shown, innocent = to_markdown(plan(words)), to_markdown(plan("innocent"))
    assert all(line.isprintable() for line in shown.replace("\u200b", "").split("\n"))
    ours, theirs = list(outside(innocent)), list(outside(shown))
    assert len(theirs) == len(ours)
    assert len(shown.split("\n")) == len(innocent.split("\n"))
    for told, meant in zip(theirs, ours, strict=True):
        if "innocent" not in meant:
            assert told == meant
        elif meant.startswith("- "):
            assert told.startswith("- ")
            assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]#|!]|<|@(?!\u200b)|://", told)
    assert [line.partition(" ")[0] for line in shown.split("\n") if line[:1] in "+-~!?"] == [
        line.partition(" ")[0] for line in innocent.split("\n") if line[:1] in "+-~!?"
    ]


@settings(max_examples=200)
@given(ANY)
def test_the_facts_are_inline_code_to_their_end(words: str) -> None:
    """Each run of backticks that opens is closed by one as long: nothing of the value is markup."""
    [facts] = [line for line in outside(to_markdown(plan(words))) if line.startswith("base ")]
    for _ in document(plan(words)).facts:
        name, opening, rest = re.fullmatch(r"(\w+) ?(`*)(.*)", facts).groups()  # type: ignore[union-attr]
        assert name in {"base", "head", "plan", "observed", "region", "prices"}
        if not opening:
            facts = rest.removeprefix(" · ")
            continue
        closed = re.search(rf"(?<!`){opening}(?!`)", rest)
        assert closed
        facts = rest[closed.end() :].removeprefix(" · ")
    assert facts == ""


@pytest.mark.parametrize(
    ("words", "count"), [("innocent", 20_000), ("`" * 400, 300), ("<&>" * 2_000, 300), ("\x1b" * 30_000, 30)]
)
def test_a_comment_takes_it_whatever_its_size(words: str, count: int) -> None:
    it = plan(words, count)
    shown = to_markdown(it)
    assert len(shown) <= MARKDOWN_MOST
    assert shown == to_markdown(it)
    assert shown.startswith(f"### Plan: {it.counts()['create']} to add")
    list(outside(shown))
    for title in ("Declarations", "Machines", "Gangs", "Quotas", "Without this change as well", "Warnings"):
        assert re.search(rf"<summary>{title} \(\d+\)</summary>", shown)
    left = [int(number) for number in re.findall(r"^(\d+) more lines are left out here", shown, re.MULTILINE)]
    whole = sum(len(section.lines) for section in document(it).sections)
    fences = len(re.findall("^`{3,}", shown, re.MULTILINE))
    told = len(shown.split("\n")) - len(list(outside(shown))) - fences
    assert told + sum(left) == whole


def test_what_fits_is_not_cut_and_says_what_the_text_says() -> None:
    it = plan("innocent", 3)
    shown, text = to_markdown(it), to_text(it)
    assert "left out" not in shown
    assert "<details>" not in shown
    signed = [line for line in text.split("\n") if line[:1] in {"+", "-", "~", "!", "?"}]
    assert sorted(line for line in shown.split("\n") if line in signed) == sorted(signed)
    assert "**Refused by the guard rails" in shown
    assert shown.count("- innocent\n") == 3


def test_a_reviewer_reads_first_what_it_does_to_others() -> None:
    shown = to_markdown(plan("innocent", 3))
    titles = re.findall(r"^\*\*([A-Z][A-Za-z -]+) \(\d+\)\*\*$", shown, re.MULTILINE)
    assert titles == ["Gangs", "Quotas", "Without this change as well", "Warnings", "Declarations", "Machines"]


@pytest.mark.parametrize(
    ("stopped", "lost_usd", "told"),
    [
        ([True], [1.5], ["1 gang is stopped, with the loss of work worth 1.50 USD."]),
        ([True, True, False], [0.0, 0.0, 0.0], ["2 gangs are stopped.", "The start of 1 waiting gang changes."]),
        ([False, False], [0.0, 0.0], ["The start of 2 waiting gangs changes."]),
        ([], [], []),
    ],
)
def test_what_happens_to_gangs_is_counted_on_top(stopped: list[bool], lost_usd: list[float], told: list[str]) -> None:
    gangs = [GangImpact("g", "q", 8, "r", stopped=it, lost_usd=usd) for it, usd in zip(stopped, lost_usd, strict=True)]
    it = replace(plan("innocent"), gangs=tuple(gangs))
    assert [line for line in document(it).totals if "gang" in line] == told
    for line in told:
        assert f"- {line}\n" in to_markdown(it)


def test_a_long_section_folds_as_a_whole() -> None:
    shown = to_markdown(replace(plan("innocent", 21), gangs=()))
    assert "<details><summary>Machines (21)</summary>" in shown
    assert "left out" not in shown
    assert shown.count("<details>") == shown.count("</details>") == 5


def test_a_plan_without_the_cluster_does_not_say_that_it_was_observed() -> None:
    told = replace(plan("words"), now=None, then=None)

    assert "# made: 1970-01-01T00:00:00Z" in to_text(told)
    assert "observed" not in to_text(told)
    assert "not known without a look at the cluster" in to_markdown(told)
    assert "# observed: 1970-01-01T00:00:00Z" in to_text(plan("words"))
