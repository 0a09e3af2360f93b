"""The documentation as a site: every page has its place, and a dead link fails the build."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site import DOCS, GUIDES, OUTSIDE, ROOT, linked, navigation


def pages(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    parts = node.values() if isinstance(node, dict) else node
    assert isinstance(parts, list | type({}.values()))
    return [page for part in parts for page in pages(part)]


def test_every_page_stands_in_the_menu_once() -> None:
    found = pages(navigation())
    here = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(found) == sorted({*here, *OUTSIDE.values()})
    assert [it for listed in GUIDES.values() for it in listed if it not in here] == []


@pytest.mark.parametrize(
    ("source", "page", "text", "expected"),
    [
        ("docs/guides/x.md", "guides/x.md", "[a](cost.md#asking)", "[a](cost.md#asking)"),
        ("docs/guides/x.md", "guides/x.md", "[a](../../README.md#try-it)", "[a](../project/readme.md#try-it)"),
        ("docs/guides/x.md", "guides/x.md", "see [these](../../examples/).", "see these."),
        ("docs/guides/x.md", "guides/x.md", "[a](../../nothing.md)", "[a](../../nothing.md)"),
        ("README.md", "project/readme.md", "[a](docs/guides/cost.md) [b](LICENSE)", "[a](../guides/cost.md) b"),
        ("README.md", "project/readme.md", "![p](docs/images/plan.png)", "![p](../images/plan.png)"),
        ("docs/x.md", "x.md", "[a](https://example.com/) [b](#here)", "[a](https://example.com/) [b](#here)"),
    ],
)
def test_links_out_of_the_folder(source: str, page: str, text: str, expected: str) -> None:
    assert linked(text, source, page) == expected


def build(folder: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(folder / "mkdocs.yml")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, "--site-dir", str(target)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_it_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "index.html").read_text("utf-8")
    for words in ("I submit", "I review", "I run", "I pay"):
        assert words in home
    asked = re.findall(r"<(?:script|link|img)[^>]*\b(?:src|href)=\"(https?:[^\"]+)\"", home)
    assert asked == []


@pytest.mark.slow
@pytest.mark.parametrize("link", ["[x](nothing.md)", "[x](cost.md#nowhere)", "[x](../../nothing.md)"])
def test_a_dead_link_fails_the_build(tmp_path: Path, link: str) -> None:
    for name in ("docs", "tools", "providers/kube/objects/crds"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", *OUTSIDE, "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    page = tmp_path / "docs" / "guides" / "replay.md"
    page.write_text(page.read_text("utf-8") + f"\n{link}\n", "utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "replay.md" in done.stderr + done.stdout
