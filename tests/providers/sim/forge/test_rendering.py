"""Markdown of comments as HTML: what a plan's comment uses, and nothing that its author wrote as HTML."""

import pytest

from agent.sandbox.example import example_fleet
from fleet.plan import declared_plan
from fleet.review.comment import Review, ReviewOutcome, with_section
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import load
from providers.sim.forge.rendering import markdown_page


def test_the_comment_of_a_plan_is_shown_whole() -> None:
    files = {path.name: path.read_bytes() for path in example_fleet().glob("*.yaml")}
    plan = declared_plan(Fleet(), load(files), Snapshot(now_s=0.0))
    text = with_section("", Review("one", "a" * 40, "b" * 40, ReviewOutcome.APPLIES, plan=plan))
    html = markdown_page(text)
    assert html.startswith("<h2><code>one</code>: <code>aaaaaaaaaaaa</code> would come into force")
    assert "&lt;details" not in html
    assert html.count("<details><summary>Declarations (") == html.count("</details>") == 1
    assert '<span class="added">+ nodepool/h100-full</span>' in html
    assert "&lt;!--" not in html
    assert "muster-section" not in html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>\n"),
        ("<div onclick=x>\ny", "<p>&lt;div onclick=x&gt;\ny</p>\n"),
        ("<!-- a --><b>", "<p>&lt;!-- a --&gt;&lt;b&gt;</p>\n"),
        ("<!-- a -->\nb", "<p>b</p>\n"),
        ("<!-- a --> b -->", "<p>&lt;!-- a --&gt; b --&gt;</p>\n"),
        ("</details>\nx", "<p>x</p>\n"),
        ("<details><summary>a</summary>\n\nx", "<details><summary>a</summary>\n<p>x</p>\n</details>"),
        ('<details><summary>"&</summary>', "<details><summary>&quot;&amp;</summary>\n</details>"),
        ("<details><summary><b></summary>", "<p>&lt;details&gt;&lt;summary&gt;&lt;b&gt;&lt;/summary&gt;</p>\n"),
        ("<details open><summary>a</summary>", "<p>&lt;details open&gt;&lt;summary&gt;a&lt;/summary&gt;</p>\n"),
        ("- </details>", "<ul>\n<li>&lt;/details&gt;</li>\n</ul>\n"),
        ("> </details>", "<blockquote>\n<p>&lt;/details&gt;</p>\n</blockquote>\n"),
        ("```\n</details><b>\n```", "<pre><code>&lt;/details&gt;&lt;b&gt;</code></pre>\n"),
        ("```diff\n+<b>\n x\n```", '<pre><code><span class="added">+&lt;b&gt;</span>\n x</code></pre>\n'),
        ('```"><b>\nx\n```', "<pre><code>x</code></pre>\n"),
        ("[a](javascript:x)", "<p>[a](javascript:x)</p>\n"),
        ("[a](data:text/html,x)", "<p>[a](data:text/html,x)</p>\n"),
        ('[a](http://b/"c)', '<p><a href="http://b/%22c">a</a></p>\n'),
        ("![a](http://b/c.png)", '<p>!<a href="http://b/c.png">a</a></p>\n'),
    ],
)
def test_markdown(text: str, html: str) -> None:
    assert markdown_page(text) == html
