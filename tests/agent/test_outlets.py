"""Every place where text of strangers is shown, and hostile text pushed through each of them."""

import ast
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from agent.cli import exits
from agent.cli.explain import short_lines
from agent.cli.tables import TextTable, render
from agent.explanation import explanation_lines
from agent.logs import LibraryRecords, configure_logs
from agent.news import News
from agent.web.seen import explained_at_once
from fleet.actions import Announce
from fleet.plan import declared_plan, make_plan
from fleet.plan.render import to_markdown, to_text
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, Claim, DecisionFailure, Gang, JobRef, Launch, NodeDisruption, Snapshot
from model import report
from model.fleet import Fleet
from model.loader import load
from model.plain_text import plain_lines
from model.problem import Code, Problem
from providers.kube.objects import (
    Finding,
    NodePoolReport,
    SyncProblem,
    SyncReport,
    claim_status,
    event_object,
    node_pool_status,
    sync_status,
    workload_object,
    workload_status,
)
from providers.kube.objects.reports import DriftReport, PlanSummary
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "\x1b[2K\x1b[1AApplied",
    "x\nPlan: 0 to add, 0 to change, 0 to destroy.",
    "x\rforged",
    "gpu\u202elmay.loop",
    "zero\u200bwidth\u2066",
    "line\u2028separator\x85",
    "\x9b31m",
    "```\n# a heading",
    "\udcff",
]
SLACK_MARKUP = ["<!channel>", "<https://evil.example|ours>", "*b*", "@here", "`code`"]
PROBLEM = Problem(
    file="a.yaml",
    line=1,
    column=1,
    path="",
    message="m",
    code=Code.INVALID_VALUE,
    hint="",
    excerpt="",
    severity="error",
)
CLAIM = Claim(
    "c",
    uid="u",
    node_pool="p",
    pool_hash="h",
    capacity_pool=CapacityPool("on-demand", "p5.48xlarge", "us-east-1a"),
    price_usd_h=1.0,
    list_usd_h=1.0,
    launch=Launch("g", 0, 1),
    created_at_s=0.0,
    resources={},
)
REF = JobRef("batch/v1", "Job", "ns", "j", "u")


def declared(words: str) -> Fleet:
    """YAML itself has no lone surrogates."""
    words = words.encode("utf-8", "replace").decode()
    text = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "PriorityClass",
        "metadata": {"name": "p"},
        "spec": {"value": 1, "description": words},
    }
    return load({"fleet.yaml": json.dumps(text).encode()})


def plan_text(words: str) -> str:
    return to_text(declared_plan(declared("x"), declared(words), Snapshot(now_s=1.0)))


def refused_plan_text(words: str) -> str:
    plan = declared_plan(Fleet(), Fleet(), Snapshot(now_s=1.0))
    return to_text(replace(plan, refusals=(words,), warnings=(words,)))


def plan_markdown(words: str) -> str:
    plan = make_plan(declared("x"), declared(words), Snapshot(now_s=1.0), base_revision=words, head_revision=words)
    return to_markdown(replace(plan, refusals=(words,), warnings=(words,))).replace("\u200b", "")


def as_workload(it: Gang) -> dict[str, Any]:
    return {**workload_object(it), "status": workload_status(it, NOW)["status"]}


def explained(words: str) -> str:
    world = World(FleetBuilder().pool().team().queue().build())
    it = replace(gang("g"), message=words)
    world.waits(it)
    told = explanation_lines(explained_at_once(world.fleet, world.snapshot(), it))
    return plain_lines([*told, *short_lines(as_workload(it), NOW)])


def complained(words: str) -> str:
    stream, before = io.StringIO(), sys.stderr
    sys.stderr = stream
    try:
        exits.complain(words)
    finally:
        sys.stderr = before
    return stream.getvalue().removesuffix("\n")


def problem(render_problem: Callable[[list[Problem]], str], **fields: str) -> str:
    return render_problem([replace(PROBLEM, **fields)])


def sync_words(words: str) -> str:
    shown = SyncReport(
        "s",
        findings=(Finding("Ready", False, "Refused", words),),
        problems=(SyncProblem(words, 1, 1, words),),
        plan=PlanSummary(text=words),
    )
    return json.dumps(sync_status(shown, 0.0), ensure_ascii=False)


def pool_words(words: str) -> str:
    drifted = (DriftReport("Drifted", words, 1, ("c",)),)
    return json.dumps(node_pool_status(NodePoolReport("p", drifted=drifted), 0.0), ensure_ascii=False)


def gang_words(words: str) -> str:
    return json.dumps(workload_status(replace(gang("g"), message=words), 0.0), ensure_ascii=False)


def claim_words(words: str) -> str:
    leaving = replace(CLAIM, disruption=NodeDisruption("Drifted", words, 0.0), failure=DecisionFailure("E", words))
    return json.dumps(claim_status(leaving, 0.0), ensure_ascii=False)


def event_words(words: str) -> str:
    return str(event_object(Announce(REF, "Refused", words), 0.0)["message"])


def logged(log_format: str) -> Callable[[str], str]:
    def line(words: str) -> str:
        stream, error = io.StringIO(), sys.stderr
        sys.stderr = stream
        try:
            configure_logs(log_format)
            structlog.get_logger().warning("said", words=words)
            LibraryRecords().emit(logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "bad %s", (words,), None))
        finally:
            sys.stderr = error
        assert stream.getvalue().count("\n") == 2
        return stream.getvalue().replace("\n", " ")

    return line


def news(form: str) -> Callable[[str], str]:
    def body(words: str) -> str:
        found = News("Warning", words, "Refused", words, "main@sha1:1", words, teams=(words,)).body("c", form)
        return " ".join(str(value) for value in found.values()).replace("\n", " ", 2).replace("\u200b", "")

    return body


OUTLETS: dict[str, Callable[[str], str]] = {
    "plan: a declared field": plan_text,
    "plan: refusals and warnings": refused_plan_text,
    "plan: markdown": plan_markdown,
    "validate: message as text": lambda words: problem(report.text, message=words),
    "validate: file as text": lambda words: problem(report.text, file=words),
    "validate: hint as text": lambda words: problem(report.text, hint=words),
    "validate: excerpt as text": lambda words: problem(report.text, excerpt=words.replace("\n", " ")),
    "validate: message for GitHub": lambda words: problem(report.github, message=words),
    "validate: file for GitHub": lambda words: problem(report.github, file=words),
    "validate: hint for GitHub": lambda words: problem(report.github, hint=words),
    "validate: message as SARIF": lambda words: json.loads(problem(report.sarif, message=words))["runs"][0]["results"][
        0
    ]["message"]["text"],
    "explain": explained,
    "tables": lambda words: render(TextTable(("name",), [{"name": words}])),
    "complaints of commands": complained,
    "reasons of waiting work": lambda words: Refusal(Reason.NO_OFFER, words).message,
    "status of a FleetSync": sync_words,
    "status of a NodePool": pool_words,
    "status of a Workload": gang_words,
    "status of a NodeClaim": claim_words,
    "events": event_words,
    "log for people": logged("console"),
    "log for machines": logged("json"),
    "notification for Slack": news("Slack"),
    "notification for programs": news("Webhook"),
    "notification for Teams": news("Teams"),
    "notification for PagerDuty": news("PagerDuty"),
}


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("outlet", OUTLETS)
def test_nothing_hostile_is_shown_as_it_is(outlet: str, words: str) -> None:
    """Lines of our own are known from those of an innocent text: there are no more, and every sign is visible."""
    shown, innocent = OUTLETS[outlet](words), OUTLETS[outlet]("innocent")
    assert len(shown.splitlines()) == len(innocent.splitlines()), shown
    assert all(line.isprintable() for line in shown.splitlines()), shown


@pytest.mark.parametrize("words", SLACK_MARKUP)
def test_slack_gets_no_markup_of_strangers(words: str) -> None:
    text = News("Warning", words, "Refused", words, "r").body("c", "Slack")["text"]
    assert words not in text
    assert "<" not in text
    assert text.startswith(":warning: *c* ")


@pytest.mark.parametrize("words", [*SLACK_MARKUP, "[ours](https://evil.example)", "**bold**"])
def test_teams_shows_all_text_of_strangers_in_the_one_element_that_knows_no_markdown(words: str) -> None:
    (attached,) = News("Warning", words, "Refused", words, words, words, teams=(words,)).body("c", "Teams")[
        "attachments"
    ]
    assert {block["type"] for block in attached["content"]["body"]} == {"RichTextBlock"}
    assert "actions" not in attached["content"]


def writes() -> Iterator[tuple[str, str]]:
    """What the commands write to standard output and error, as source text."""
    for path in sorted((ROOT / "agent/cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "sys.stdout.write",
                "sys.stderr.write",
                "print",
            }:
                yield path.name, ast.unparse(node.args[0])


SAFE = ("plain", "problem_text(", "json.dumps(", "render(", "_rendered(", "version_of(", "the extra 'sandbox'")
SAFE_NAMES = {
    "replay.py": "RENDERERS[",  # each escapes by itself: fleet/replay/render.py, charts.py
    "get.py": "_written(",  # JSON, YAML or a table, which escape
    "offers.py": "told",  # JSON or plain_lines
    "schema.py": "known[",  # a file of the package
    "validate.py": "text",  # of a renderer of model/report.py
}


def test_no_command_writes_past_the_function_that_makes_text_plain() -> None:
    found = list(writes())
    assert len(found) > 10
    for file, written in found:
        known = any(mark in written for mark in SAFE) or written.startswith(SAFE_NAMES.get(file, "\0"))
        assert known or "files read" in written or "len(files)" in written, (file, written)
