"""Hooks of the documentation's site (`mkdocs.yml`): which pages there are, by reader, and links out of `docs/`.

The files are written to be read in the repository, so that they link to its README, to examples and to folders. Those
of `OUTSIDE` become pages; of a link to anything else outside the words stay. A link to nothing stays too, and fails the
build.
"""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
OUTSIDE: Final[Mapping[str, str]] = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Files of the repository that are pages of the site -> where."""
GUIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "I submit": (
        "readers/submit.md",
        "guides/quick-start.md",
        "guides/first-fleet.md",
        "guides/concepts.md",
        "guides/workloads.md",
        "guides/asking-why.md",
        "guides/admission.md",
        "guides/ordinary-pods.md",
        "guides/the-page.md",
    ),
    "I review": (
        "readers/review.md",
        "guides/reviewed-pull-requests.md",
        "guides/plan-in-pull-requests.md",
        "guides/signatures-and-guard-rails.md",
        "guides/replay.md",
    ),
    "I run": (
        "readers/run.md",
        "guides/running-on-a-cluster.md",
        "guides/operating-by-hand.md",
        "guides/what-happens-when.md",
        "guides/interruptions.md",
        "guides/gpu-readings.md",
        "guides/metrics.md",
        "guides/runbooks.md",
        "guides/moving-from-karpenter.md",
        "guides/adopting-machines.md",
        "guides/faults-in-the-sandbox.md",
        "guides/simulation.md",
        "guides/benchmarks.md",
    ),
    "I pay": ("readers/pay.md", "guides/cost.md", "guides/reserved-capacity.md"),
}
"""Who reads -> pages, the way in first. A guide that nobody has put here stands last under what runs."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def navigation() -> list[dict[str, Any]]:
    """The site's pages by reader, then what is looked up."""
    known = {page for pages in GUIDES.values() for page in pages}
    rest = [it for it in _pages("guides") if it not in known]
    readers = [{reader: [*pages, *(rest if reader == "I run" else [])]} for reader, pages in GUIDES.items()]
    reference = ["status.md", "reasons.md", "glossary.md", {"Kinds": _pages("kinds")}, {"Decisions": _pages("design")}]
    return [{"Home": "README.md"}, *readers, {"Reference": reference}, {"Project": list(OUTSIDE.values())}]


def _pages(folder: str) -> list[str]:
    names = sorted(str(path.relative_to(DOCS)) for path in (DOCS / folder).glob("*.md"))
    return sorted(names, key=lambda it: not it.endswith("README.md"))


def linked(markdown: str, source: str, page: str) -> str:
    """The text of `source` (a path in the repository) with its links as the site has them at `page`."""

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if place in OUTSIDE:
            there = OUTSIDE[place]
        elif place.startswith("docs/"):
            there = place.removeprefix("docs/")
        else:
            return words if (ROOT / place).exists() else found[0]
        return f"[{words}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{hash_}{anchor})"

    text = _LINK.sub(link, markdown)
    if page in OUTSIDE.values():
        text = text.replace("](docs/images/", "](../images/")
    return text


def on_config(config: Any) -> Any:
    """Gives the site its navigation."""
    config.nav = navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that stand outside `docs/`."""
    from mkdocs.structure.files import File

    for source, page in OUTSIDE.items():
        text = linked((ROOT / source).read_text("utf-8"), source, page)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mends the links of a page of `docs/`."""
    where: str = page.file.src_uri
    markdown = markdown.replace("```yaml fragment\n", "```yaml\n")  # what tests need not load; no language of its own
    return markdown if where in OUTSIDE.values() else linked(markdown, f"docs/{where}", where)
