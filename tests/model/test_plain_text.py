"""What strangers wrote, as it is shown: on one line, visible, in order, and without a meaning for whoever shows it."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.plain_text import code_span, fenced, markdown, plain, plain_block, plain_lines, slack

ANY = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pools/gpu.yaml: ok", "pools/gpu.yaml: ok"),
        ("Größe ≥ 8 日本", "Größe ≥ 8 日本"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nPlan: 0 to add", r"a\nPlan: 0 to add"),
        ("a\rb\tc\0\x7f\x9b", r"a\rb\tc\x00\x7f\x9b"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("gpu\u202elmay.x", r"gpu\u202elmay.x"),
        ("a\u200bb\u2066c\ufeff", r"a\u200bb\u2066c\ufeff"),
        ("a\U000e0041b", r"a\U000e0041b"),
        ("\udcff\ue000", r"\udcff\ue000"),
        ("1\u00a0000\u202f000", "1 000 000"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(ANY)
@example("\u0890")
def test_plain_is_one_visible_line_and_twice_is_once(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(sign)[0] == "C" for sign in shown)
    assert plain(shown) == shown
    shown.encode("utf-8")


@given(st.lists(ANY, max_size=5))
def test_as_many_lines_as_were_made(lines: list[str]) -> None:
    assert len(plain_lines(lines).split("\n")) == max(1, len(lines))
    assert plain_block("a\n\tb\x1b") == "a\n    b\\x1b"


@given(ANY)
@example("```\n````\nPlan: 1 to add")
@example("~~~\n```diff")
def test_nothing_ends_a_fence_but_its_end(text: str) -> None:
    opening, *body, closing = fenced(text, "diff").split("\n")
    assert opening == f"{closing}diff"
    assert not any(re.match(rf" *`{{{len(closing)},}}", line) for line in body)
    assert len(body) == text.count("\n") + 1


@pytest.mark.parametrize(("text", "shown"), [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("", "")])
def test_inline_code(text: str, shown: str) -> None:
    assert code_span(text) == shown


@given(ANY)
@example("<!channel> <https://evil.example|click> *b* _i_ ~s~ `c` @here &lt;")
def test_slack_sees_no_markup(text: str) -> None:
    shown = slack(text)
    assert "\n" not in shown
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", shown)
    assert not re.search(r"[@*_~`](?!\u200b)", shown)


@given(ANY)
@example("# a\n<script>[x](http://evil) ![y](z) **b** @team | c")
def test_markdown_sees_no_markup(text: str) -> None:
    shown = markdown(text)
    assert "\n" not in shown
    assert "<" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]#|!]", shown)
    assert not re.search(r"@(?!\u200b)|://", shown)


@pytest.mark.parametrize(
    "text", ["#12", "a/b#12", "GH-12", "!12", "~bug", "%1", "&3", "$4", "@team", "www.evil.example"]
)
def test_no_forge_makes_a_link_of_markdown(text: str) -> None:
    """Forges look for these in what is shown, so that a backslash does not hide them."""
    assert text not in re.sub(r"\\(.)", r"\1", markdown(text)).replace("&amp;", "&")
