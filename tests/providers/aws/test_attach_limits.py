"""How many volumes machines attach: never more than the CSI driver says once they have joined."""

import pytest

from providers.aws.attach_limits import EBS_DRIVER, attach_limits
from providers.aws.facts import package_types

_SLOTS: dict[str, tuple[int, bool]] = {
    "t2.large": (39, False),
    "m5.large": (27, True),
    "m5.metal": (31, True),
    "m5d.4xlarge": (26, True),
    "m5d.24xlarge": (23, True),
    "m6id.32xlarge": (23, True),
    "i3en.24xlarge": (19, True),
    "i4i.32xlarge": (19, True),
    "d3.8xlarge": (3, True),
    "m7i.large": (32, False),
    "m7i.24xlarge": (64, False),
    "m7i.48xlarge": (128, False),
    "m7g.large": (27, True),
    "c8gn.48xlarge": (64, False),
    "r8g.16xlarge": (48, False),
    "g4dn.xlarge": (25, True),
    "g4dn.12xlarge": (22, True),
    "g5.xlarge": (25, True),
    "g5.12xlarge": (22, True),
    "g5.48xlarge": (9, True),
    "g5g.16xlarge": (25, True),
    "g6.12xlarge": (32, False),
    "g6e.48xlarge": (128, False),
    "p3dn.24xlarge": (17, True),
    "p4d.24xlarge": (28, False),
    "p5.4xlarge": (32, False),
    "p5.48xlarge": (64, False),
    "p6-b200.48xlarge": (64, False),
    "inf1.24xlarge": (11, True),
    "inf2.xlarge": (26, True),
    "trn1.2xlarge": (25, True),
    "trn2.48xlarge": (64, False),
}
"""Attachments by type, and whether interfaces take some (aws-ebs-csi-driver `volume_limits_table.go`, 2026)."""


@pytest.mark.parametrize(("name", "slots"), _SLOTS.items(), ids=_SLOTS)
def test_never_more_than_the_driver_says(name: str, slots: tuple[int, bool]) -> None:
    """It takes off the root disk, and interfaces beyond the first: there is a second one."""
    most, shared = slots
    assert 1 <= attach_limits(package_types()[name])[EBS_DRIVER] <= most - 1 - shared


@pytest.mark.parametrize(
    ("name", "most"),
    [("p5.48xlarge", 63), ("p4d.24xlarge", 27), ("g5.xlarge", 23), ("m5.large", 25), ("g6.xlarge", 31)],
)
def test_what_is_usual_is_exact(name: str, most: int) -> None:
    assert attach_limits(package_types()[name]) == {EBS_DRIVER: most}


def test_every_type_attaches_something() -> None:
    assert min(attach_limits(it)[EBS_DRIVER] for it in package_types().values()) == 1
