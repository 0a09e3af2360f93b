"""What NVIDIA's own programs answered about partitioning, where it lies beside the repository."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.mig import RUNNERS, SUITE, ran
from tests.support.shared import shared_path

GEOMETRY = {"id": "x", "model": "a100-40gb", "layout": {"1g.5gb": 7}, "valid": True, "kind": "judged"}
PARTED = {"id": "x", "selected": "c", "valid": True, "error": ""} | {
    "config": "version: v1\nmig-configs: {c: [{devices: all, mig-enabled: false}]}"
}
GPU = {"model": "NVIDIA L4", "mib": 23034, "mig": None}
SHARED = {"id": "x", "strategy": "none", "config": "", "gpus": [GPU], "plugin": "serves"} | {
    "resources": {"nvidia.com/gpu": 1},
    "labels": {
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.memory": "23034",
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    },
}


def test_every_row() -> None:
    """Those that depend on the driver's start order are only answered."""
    results = list(SUITE.run(sorted(shared_path("conformance/mig").iterdir())))
    assert [f"{it.id}: {it.got} {it.note}" for it in results if not it.passed] == []
    assert Counter((it.case or {})["suite"] for it in results).keys() == RUNNERS.keys()


@pytest.mark.parametrize(
    ("kind", "row"),
    [("mig-geometry", GEOMETRY), ("mig-parted-config-files", PARTED), ("device-plugin-sharing", SHARED)],
)
def test_a_row(kind: str, row: dict[str, Any]) -> None:
    assert ran(kind, row).passed
    unknown = ran(kind, {**row, "colour": "red"})
    assert not unknown.passed
    assert "colour" in unknown.note


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("mig-geometry", {**GEOMETRY, "layout": {"1g.5gb": 8}}),
        ("mig-geometry", {**GEOMETRY, "valid": False}),
        ("mig-geometry", {**GEOMETRY, "model": "a100-41gb"}),
        ("mig-geometry", {**GEOMETRY, "model": "gb200", "driver_memory_gb": 189, "layout": {"1g.23gb": 1}}),
        ("mig-parted-config-files", {**PARTED, "selected": "d"}),
        ("mig-parted-config-files", {**PARTED, "config": "version: v2"}),
        ("device-plugin-sharing", {**SHARED, "resources": {"nvidia.com/gpu": 2}}),
        ("device-plugin-sharing", {**SHARED, "labels": {**SHARED["labels"], "nvidia.com/gpu.x": "1"}}),
        ("device-plugin-sharing", {**SHARED, "plugin": "fails: somehow"}),
        ("device-plugin-sharing", {**SHARED, "strategy": "both"}),
        ("device-plugin-sharing", {**SHARED, "gpus": [GPU, {**GPU, "model": "NVIDIA T4"}]}),
        ("mig-weather", GEOMETRY),
    ],
)
def test_a_row_that_is_answered_otherwise_fails(kind: str, row: dict[str, Any]) -> None:
    assert not ran(kind, row).passed


@pytest.mark.parametrize(("model", "profile"), [("gb200", "1g.24gb"), ("gb200-186gb", "7g.189gb")])
def test_drivers_that_name_another_memory(model: str, profile: str) -> None:
    row = {**GEOMETRY, "model": model, "driver_memory_gb": 189, "layout": {profile: 1}}
    assert ran("mig-geometry", row).passed


def test_a_row_that_the_drivers_order_decides_is_left_out() -> None:
    assert ran("mig-geometry", {**GEOMETRY, "valid": False, "order_sensitive": True}).passed


def test_the_recording_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = shared_path("conformance/mig/mig-manager-protocol.json").read_text("utf-8")
    (tmp_path / "mig-manager-protocol.json").write_text(recording.replace("paused-for-mig-change", "paused"), "utf-8")
    assert main(["mig", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"
