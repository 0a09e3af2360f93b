"""README and guides hold: commands parse, links lead somewhere, examples are valid, edits still apply."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from agent.cli import exits
from agent.cli.app import app
from agent.clouds import cloud_provider
from agent.demo.steps import STEPS
from agent.sandbox.example import example_fleet
from fleet.gangs.lifecycle import new_gang
from fleet.plan import declared_plan
from fleet.plan.render import to_json, to_text
from fleet.scheduling.prefilter import prefilter
from fleet.snapshot import Snapshot
from model import report
from model.fleet import Fleet
from model.loader import inspect, load
from providers.kube.objects import DECODERS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
QUICK = ROOT / "docs" / "guides" / "quick-start.md"
READERS = sorted((ROOT / "docs" / "readers").glob("*.md"))
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

UsageError = typer.BadParameter.__bases__[0]
"""What a wrong command line raises; typer has no public name for it."""

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(muster [^`\n]+)`")
_COMMAND = re.compile(r"^\s*(?:\$ |- run: |run: |- )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(muster [a-z-].*)$")
_HEREDOC = re.compile(r"<<'EOF'\n(.*?)^EOF$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences(path: Path, *languages: str) -> Iterator[str]:
    for match in _FENCE.finditer(path.read_text(encoding="utf-8")):
        if match["info"].strip() in languages:
            yield match["text"]


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150
    pictures = sorted((ROOT / "docs" / "images").glob("*.png"))
    assert [relative(it) for it in pictures if it.stat().st_size > 200_000] == []
    assert [it for it in pictures if f"({relative(it)})" not in README.read_text(encoding="utf-8")] == []


# -- commands ---------------------------------------------------------------------------------------------------------


def commands(path: Path) -> Iterator[str]:
    """Every `muster ...` of shell and workflow fences and of code within sentences."""
    text = path.read_text(encoding="utf-8")
    for block in fences(path, "sh", "yaml"):
        for line in block.splitlines():
            if match := _COMMAND.match(line):
                yield match.group(1)
    yield from _INLINE.findall(_FENCE.sub("", text))


def arguments(command: str) -> list[str]:
    """The words up to the first operator of the shell, without comments; `<name>` stands for a word."""
    lexer = shlex.shlex(re.sub(r"<(\w+)>", r"\1", command), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(lexer.punctuation_chars):
            break
        words.append(word)
    return words[1:]


def parse(words: list[str]) -> None:
    """Walk the tree of commands and parse the options, running nothing; raises what typer would print as usage."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("muster", [], resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        assert words, "a group of commands, and none of them named"
        name, command, words = command.resolve_command(context, words)
        assert command is not None
        if words == ["--help"]:
            return
        if hasattr(command, "resolve_command"):
            context = command.make_context(name, [], parent=context, resilient_parsing=True)
    command.make_context(name, list(words), parent=context)


COMMANDS = sorted({(relative(path), command) for path in (README, *GUIDES, *READERS) for command in commands(path)})


@pytest.mark.parametrize(("page", "command"), [(p, c) for p, c in COMMANDS if c != "muster --help"])
def test_commands_parse(page: str, command: str) -> None:
    parse(arguments(command))


def test_there_are_commands_to_parse() -> None:
    shown = {page for page, _ in COMMANDS}
    assert {"README.md", "docs/guides/first-fleet.md", "docs/guides/plan-in-pull-requests.md"} <= shown
    names = {arguments(command)[0] for _, command in COMMANDS}
    assert {"validate", "plan", "sandbox", "get", "explain", "version"} <= names


@pytest.mark.parametrize("command", ["muster paln .", "muster plan --form x", "muster get", "muster validate -o xml"])
def test_a_wrong_command_would_be_found(command: str) -> None:
    with pytest.raises((UsageError, AssertionError)):
        parse(arguments(command))


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        target
        for path in (README, *GUIDES)
        for target in re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {"demo", "test", "install"} <= named
    assert [target for target in sorted(named) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


# -- links ------------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Ids of a page's headings as forges make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_lead_somewhere(path: Path) -> None:
    lost = []
    for link in _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            lost.append(link)
    assert lost == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            found = (page.parent / link.partition("#")[0]).resolve()
            waiting += [found] if found.suffix == ".md" and found.exists() else []
    designs = set((ROOT / "docs" / "design").glob("*.md"))
    assert [relative(path) for path in PAGES if path not in seen | designs] == []


def test_pictures_stand_alone() -> None:
    """An SVG shown as an image may load nothing: no scripts, no references beyond itself."""
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"<script|<image|href=\"(?!#)|@import|url\((?!#)", text)
        assert "<title" in text
        assert f"({relative(path)})" in README.read_text(encoding="utf-8")


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_declarations_are_valid(path: Path) -> None:
    """The fleet documents of a page (`yaml fragment` marks pieces) form a fleet without errors."""
    documents = [text for text in fences(path, "yaml") if re.search(r"^apiVersion: muster\.dev/", text, re.MULTILINE)]
    if not documents:
        pytest.skip("declares nothing")
    problems = inspect({"page.yaml": "---\n".join(documents).encode()}).problems
    errors = [problem for problem in problems if problem.severity == "error"]
    assert errors == [], report.text(errors)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_other_yaml_is_yaml(path: Path) -> None:
    for text in fences(path, "yaml", "yaml fragment"):
        list(yaml.safe_load_all(text))


def sandbox_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(example_fleet().glob("*.yaml"))}


MANIFESTS = [
    (relative(path), manifest)
    for path in (README, *GUIDES)
    for block in fences(path, "sh")
    for text in _HEREDOC.findall(block)
    for manifest in yaml.safe_load_all(text)
]


@pytest.mark.parametrize(("page", "manifest"), MANIFESTS, ids=lambda value: str(value)[:40])
def test_jobs_may_run_in_the_sandbox(page: str, manifest: dict[str, Any]) -> None:
    """The jobs of the guides name a queue, a class and a namespace that the example fleet knows."""
    fleet = load(sandbox_files())
    metadata = {**manifest["metadata"], "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    raw = json.dumps({**manifest, "metadata": metadata}).encode()
    job = DECODERS[manifest["apiVersion"].rpartition("/")[0], manifest["kind"]](raw)
    assert job.suspended
    gang = new_gang(fleet, Snapshot(now_s=0.0), job)
    assert prefilter(fleet, Snapshot(now_s=0.0), gang) is None
    wanted = {name for pod_set in gang.pod_sets for name in pod_set.requests if "/" in name}
    quotas = fleet.teams[fleet.queues[gang.queue].spec.team].spec.quotas
    assert wanted <= {resource for quota in quotas.values() for resource in quota.guaranteed}


def test_there_are_jobs_to_run() -> None:
    assert {page for page, _ in MANIFESTS} == {"README.md", "docs/guides/first-fleet.md", "docs/guides/quick-start.md"}


@pytest.mark.parametrize("path", [QUICK, ROOT / "docs" / "guides" / "first-fleet.md"], ids=relative)
def test_the_edit_of_the_fleet_still_applies(path: Path, tmp_path: Path) -> None:
    """The `sed` lines of the walk through the example change what the text says they change."""
    if not shutil.which("sed"):
        pytest.skip("sed is not installed")
    for name, content in sandbox_files().items():
        (tmp_path / name).write_bytes(content)
    edits = [line for block in fences(path, "sh") for line in block.splitlines() if line.startswith("sed -i")]
    for edit in edits[:2]:
        subprocess.run(shlex.split(edit), cwd=tmp_path, check=True, timeout=30)
    fleet = load({file.name: file.read_bytes() for file in tmp_path.iterdir()})
    assert fleet.node_pools["h100-full"].spec.limits.nodes == 9
    assert fleet.teams["research"].spec.quotas["h100-full"].guaranteed["nvidia.com/gpu"] == 40
    for edit in edits[2:]:
        subprocess.run(shlex.split(edit), cwd=tmp_path, check=True, timeout=30)
        assert inspect({file.name: file.read_bytes() for file in tmp_path.iterdir()}).fleet is None


def test_the_plan_shown_is_the_plan_of_that_edit() -> None:
    """As far as it can be told without the cluster of the walk: what is declared, and what that allows."""
    before = sandbox_files()
    after = {name: content.replace(b"limits: {nodes: 8,", b"limits: {nodes: 9,") for name, content in before.items()}
    prod, research, rest = after["teams.yaml"].partition(b"name: research")
    after["teams.yaml"] = prod + research + rest.replace(b"nvidia.com/gpu: 32", b"nvidia.com/gpu: 40", 1)
    snapshot = Snapshot(now_s=0.0, catalog=cloud_provider().catalog("us-east-1"))
    told = to_text(declared_plan(load(before), load(after), snapshot, base_revision="a")).splitlines()
    shown = re.search(
        r"^    Declarations:\n(?:    .*\n|\n)+?    Limits allow.*\n", QUICK.read_text("utf-8"), re.MULTILINE
    )
    assert shown
    lines = [line.removeprefix("    ") for line in shown[0].splitlines()]
    for title in ("Declarations:", "Quotas:"):
        block = told[told.index(title) : told.index("", told.index(title))]
        assert lines[lines.index(title) :][: len(block)] == block
    assert lines[-1] == next(line for line in told if line.startswith("Limits allow"))
    assert told[4] == "# region: us-east-1"


@pytest.mark.parametrize("path", [README, QUICK], ids=relative)
def test_the_shown_steps_are_the_demos(path: Path) -> None:
    shown = re.findall(r"^     ?(\d+)\. (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) >= 2
    assert [(number, title) for number, title in shown if STEPS[int(number) - 1][0] != title] == []


# -- formats ----------------------------------------------------------------------------------------------------------

PLAN_GUIDE = (ROOT / "docs" / "guides" / "plan-in-pull-requests.md").read_text(encoding="utf-8")


def test_every_key_of_the_plan_is_documented() -> None:
    document = to_json(declared_plan(Fleet(), Fleet(), Snapshot(now_s=0.0)))
    assert [key for key in document if f"`{key}`" not in PLAN_GUIDE] == []
    changed = to_json(declared_plan(Fleet(), load(sandbox_files()), Snapshot(now_s=0.0)))["resource_changes"][0]
    keys = [*(key for key in changed if key != "change"), *(f"change.{key}" for key in changed["change"])]
    assert [key for key in keys if f"`{key}`" not in PLAN_GUIDE] == []


def test_every_exit_code_is_documented() -> None:
    codes = {exits.OK, exits.ERROR, exits.CHANGES, exits.INVALID, exits.REFUSED}
    assert {int(code) for code in re.findall(r"^\| (\d) \|", PLAN_GUIDE, re.MULTILINE)} == codes


def test_every_option_of_plan_is_documented() -> None:
    command: Any = typer.main.get_command(app)
    options = {
        max(option.opts, key=len) for option in command.commands["plan"].params if option.opts[0].startswith("-")
    }
    assert [option for option in sorted(options) if f"`{option}" not in PLAN_GUIDE] == []
