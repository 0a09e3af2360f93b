"""Every cloud that can be named brings all that belongs to one."""

from pathlib import Path

import pytest
import yaml

from agent.clouds import DEFAULT, NAMES, cloud_provider
from agent.config import CloudSettings, load_settings
from providers.sim.clouds import cloud_simulator

LEAST = {"cluster": "c1", "region": "r", "source": {"url": "https://git.example.com/fleet.git"}}


@pytest.mark.parametrize("name", NAMES)
def test_a_cloud_has_all_that_belongs_to_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / "muster.yaml"
    file.write_text(yaml.safe_dump({**LEAST, "cloud": name, name: {"pollIntervalS": 7}}), encoding="utf-8")
    assert load_settings(file).of_cloud == CloudSettings(poll_interval_s=7)
    simulator = cloud_simulator(name)
    assert simulator.name == name
    assert cloud_provider(name).catalog(simulator.region).offers


def test_the_usual_one_is_among_them() -> None:
    assert DEFAULT in NAMES
    with pytest.raises(KeyError):
        cloud_provider("fog")
