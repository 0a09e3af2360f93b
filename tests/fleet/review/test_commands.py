"""What a comment asks for, or does not."""

import pytest

from fleet.review.commands import AskedFor, CommentCommand, command_in

PLAN = AskedFor(CommentCommand.PLAN)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/muster plan", PLAN),
        ("Looks fine\r\n/muster  plan  \r\nThanks", PLAN),
        ("Looks fine\n/muster plan ", PLAN),
        ("/muster approve", AskedFor(CommentCommand.APPROVE)),
        ("/muster why train", AskedFor(CommentCommand.WHY, "train")),
        ("/muster why research/train-2", AskedFor(CommentCommand.WHY, "research/train-2")),
        ("/muster whatif train priority=high  gpus=4",
         AskedFor(CommentCommand.WHATIF, "train", (("priority", "high"), ("gpus", "4")))),
        ("/muster apply", "apply"),
        ("/muster plan now", "plan now"),
        ("/muster approve it", "approve it"),
        ("/muster why", "why"),
        ("/muster why a b", "why a b"),
        ("/muster whatif train", "whatif train"),
        ("/muster whatif train colour=red", "whatif train colour=red"),
        ("/muster why `x`", "why `x`"),
        ("I would say /muster plan", None),
        ("> /muster plan", None),
        ("/musterplan", None),
        ("", None),
    ],
)  # fmt: skip
def test_commands(text: str, command: object) -> None:
    assert command_in(text) == command


def test_a_command_reads_as_it_was_written() -> None:
    assert str(command_in("/muster whatif train gpus=4")) == "/muster whatif train gpus=4"
