"""Whether machines of a pool join."""

import pytest

from bench.reference.karpenter.launch.health import launch_health


@pytest.mark.parametrize(
    ("outcomes", "health"),
    [
        ("", "Unknown"),
        ("+", "Healthy"),
        ("-", "Healthy"),
        ("--", "Unhealthy"),
        ("+-+-", "Unhealthy"),
        ("--++", "Unhealthy"),
        ("--+++", "Healthy"),
        ("--++++", "Healthy"),
    ],
)
def test_the_last_four_launches(outcomes: str, health: str) -> None:
    assert launch_health([each == "+" for each in outcomes]) == health
