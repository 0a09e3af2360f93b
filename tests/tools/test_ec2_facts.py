"""The committed package data is what its generator makes."""

import gzip
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

from providers.aws.facts import package
from tests.support.shared import shared_path
from tools.ec2_facts import build


def test_package_data_is_what_the_generator_makes():
    if version("moto") != "5.2.5":
        pytest.skip("the recorded DescribeInstanceTypes is that of moto 5.2.5")
    made = build(shared_path("data"), Path(str(files("moto"))) / "ec2" / "resources")
    assert json.loads(json.dumps(made)) == package()


def test_it_is_small_dated_and_names_its_sources():
    packed = files("providers.aws.data").joinpath("ec2.json.gz").read_bytes()
    assert len(packed) < 100_000
    assert gzip.decompress(packed).startswith(b'{"columns":')
    assert set(package()["meta"]["sources"]) == {"prices", "limits", "types"}
    assert package()["meta"]["types_at"].startswith("2026-")
    assert all(table["at"] and table["currency"] for table in package()["prices"].values())
