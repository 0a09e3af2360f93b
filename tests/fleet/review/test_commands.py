"""What a comment asks for, or does not."""

import pytest

from fleet.review.commands import COMMANDS_MOST, AskedFor, CommentCommand, NoCommand, commands_in

PLAN, APPROVE = AskedFor(CommentCommand.PLAN), AskedFor(CommentCommand.APPROVE)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("/muster plan", [PLAN]),
        ("Looks fine\r\n/muster  plan  \r\nThanks", [PLAN]),
        ("Looks fine\n/muster plan ", [PLAN]),
        ("/muster approve", [APPROVE]),
        ("/muster why train", [AskedFor(CommentCommand.WHY, "train")]),
        ("/muster why research/train-2", [AskedFor(CommentCommand.WHY, "research/train-2")]),
        ("/muster whatif train priority=high  gpus=4",
         [AskedFor(CommentCommand.WHATIF, "train", (("priority", "high"), ("gpus", "4")))]),
        ("/muster plan\n/muster approve", [PLAN, APPROVE]),
        ("/muster why a\r\nand\r\n/muster why b",
         [AskedFor(CommentCommand.WHY, "a"), AskedFor(CommentCommand.WHY, "b")]),
        ("I would say /muster plan", []),
        ("> /muster plan", []),
        ("/musterplan", []),
        ("/muster/plan", []),
        ("", []),
        ("Write\n```\n/muster approve\n```\nto approve", []),
        ("```md\n/muster approve\n~~~\n/muster approve", []),
        ("~~~~\n/muster approve\n~~~\n/muster approve\n~~~~\n/muster plan", [PLAN]),
        ("```one line```\n/muster plan", [PLAN]),
    ],
)  # fmt: skip
def test_commands(text: str, commands: list[object]) -> None:
    assert list(commands_in(text)) == commands


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/muster", "there is no such command"),
        ("/muster apply", "there is no such command"),
        ("/muster Plan", "there is no such command"),
        ("/muster plan now", "/muster plan"),
        ("/muster approve it", "/muster approve"),
        ("/muster why", "/muster why GANG"),
        ("/muster why a b", "/muster why GANG"),
        ("/muster why `x`", "/muster why GANG"),
        ("/muster whatif train", "/muster whatif GANG priority=CLASS"),
        ("/muster whatif train colour=red", "/muster whatif GANG priority=CLASS"),
        ("/muster plan " + "x" * 300, "/muster plan"),
    ],
)
def test_a_line_that_is_no_command_is_told_as_such(line: str, why: str) -> None:
    (found,) = commands_in(line)
    assert isinstance(found, NoCommand)
    assert why in found.why
    assert str(found) == line[:200]


def test_a_comment_has_few_commands() -> None:
    found = commands_in("/muster plan\n" * (COMMANDS_MOST + 1000))
    assert found[:-1] == (PLAN,) * COMMANDS_MOST
    assert found[-1] == NoCommand("/muster plan", f"a comment has at most {COMMANDS_MOST} commands")


def test_a_command_reads_as_it_was_written() -> None:
    assert [*map(str, commands_in("/muster whatif train gpus=4"))] == ["/muster whatif train gpus=4"]
