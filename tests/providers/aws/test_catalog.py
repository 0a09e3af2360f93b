import gzip
import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.markets import PriceSource
from model import labels
from providers.aws.catalog import build_catalog, package_catalog, package_zones
from providers.aws.facts import describe_facts, package, package_types
from providers.aws.listing import PackageListing
from providers.aws.prices import SPOT_ESTIMATE_RATIO, OnDemandPrices, SpotPrices, package_prices

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def build():
    return package_catalog("us-east-1")


def test_offers_are_sorted_and_distinct(build):
    keys = [(offer.instance_type.name, offer.zone, offer.capacity_type) for offer in build.catalog.offers]
    assert keys == sorted(set(keys))
    assert len(keys) > 10_000
    assert len(build.catalog.types) > 1350


def test_labels_are_those_of_karpenter(build):
    assert build.catalog.types["p5.48xlarge"].labels == {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "us-east-1",
        "karpenter.k8s.aws/instance-category": "p",
        "karpenter.k8s.aws/instance-generation": "5",
        "karpenter.k8s.aws/instance-family": "p5",
        "karpenter.k8s.aws/instance-size": "48xlarge",
        "karpenter.k8s.aws/instance-capability-flex": "false",
        "karpenter.k8s.aws/instance-cpu": "192",
        "karpenter.k8s.aws/instance-cpu-manufacturer": "amd",
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz": "3600",
        "karpenter.k8s.aws/instance-memory": "2097152",
        "karpenter.k8s.aws/instance-hypervisor": "nitro",
        "karpenter.k8s.aws/instance-tenancy": "default",
        "karpenter.k8s.aws/instance-encryption-in-transit-supported": "true",
        "karpenter.k8s.aws/instance-ebs-bandwidth": "80000",
        "karpenter.k8s.aws/instance-network-bandwidth": "3200000",
        "karpenter.k8s.aws/instance-local-nvme": "30400",
        "karpenter.k8s.aws/instance-gpu-name": "h100",
        "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
        "karpenter.k8s.aws/instance-gpu-count": "8",
        "karpenter.k8s.aws/instance-gpu-memory": "81920",
    }


@pytest.mark.parametrize(
    ("name", "category", "generation", "flex"),
    [
        ("c7i-flex.large", "c", "7", "true"),
        ("p6-b200.48xlarge", "p", "6", "false"),
        ("u7i-12tb.224xlarge", "u", "7", "false"),
        ("gr6f.4xlarge", "gr", "6", "false"),
        ("im4gn.large", "im", "4", "false"),
    ],
)
def test_names_are_taken_apart(build, name, category, generation, flex):
    found = build.catalog.types[name].labels
    assert found[labels.INSTANCE_CATEGORY] == category
    assert found[labels.INSTANCE_GENERATION] == generation
    assert found[labels.INSTANCE_CAPABILITY_FLEX] == flex


def test_a_fraction_of_a_gpu_is_labelled_but_not_offered_as_one(build):
    fraction = build.catalog.types["g6f.large"]
    assert fraction.gpu_count == 0
    assert "nvidia.com/gpu" not in fraction.allocatable
    assert fraction.labels[labels.INSTANCE_GPU_NAME] == "l4"
    assert fraction.labels[labels.INSTANCE_GPU_COUNT] == "0"


def test_neuron_devices_are_accelerators_not_gpus(build):
    trainium = build.catalog.types["trn1.32xlarge"]
    assert trainium.labels[labels.INSTANCE_ACCELERATOR_NAME] == "trainium"
    assert trainium.labels[labels.INSTANCE_ACCELERATOR_COUNT] == "16"
    assert labels.INSTANCE_GPU_NAME not in trainium.labels
    assert trainium.allocatable["aws.amazon.com/neuron"] == 16
    assert trainium.fabric_interfaces == 8


def test_every_label_of_a_type_is_well_known(build):
    used = {label for each in build.catalog.types.values() for label in each.labels}
    assert used <= labels.WELL_KNOWN


def test_package_prices_are_dated_and_spot_is_an_estimate(build):
    catalog = build.catalog
    assert catalog.tagging_permission == "ec2:CreateTags"
    assert catalog.priced_at_s == 1784555070.0  # 2026-07-20T13:44:30Z
    assert catalog.price_source == "on-demand: package prices of 2026-07-20; spot: estimated at 0.40 x on-demand"
    prices = {(o.capacity_type, o.zone): o.price_usd_h for o in catalog.offers if o.instance_type.name == "g6.xlarge"}
    assert prices[("on-demand", "us-east-1a")] == pytest.approx(0.8048)
    assert prices[("spot", "us-east-1a")] == pytest.approx(0.8048 * SPOT_ESTIMATE_RATIO)


def test_types_without_offers_stay_known_and_say_why(build):
    facts = package_types()
    zones = {"p5e.48xlarge": ["us-east-1a"], "g6.xlarge": ["us-east-1a"]}
    chosen = {name: facts[name] for name in ("p5e.48xlarge", "g6.xlarge", "g5.xlarge")}
    chosen["block.large"] = replace(facts["g6.xlarge"], name="block.large", usage_classes=("capacity-block",))
    zones["block.large"] = ["us-east-1a"]
    built = build_catalog("us-east-1", chosen, zones, package_prices("us-east-1"))
    assert {offer.instance_type.name for offer in built.catalog.offers} == {"g6.xlarge"}
    assert set(built.catalog.types) == set(chosen)
    assert built.left_out == {
        "p5e.48xlarge": "no on-demand price (package prices of 2026-07-20)",
        "g5.xlarge": "offered in no zone of the region that can be used",
        "block.large": "sold only as capacity-block",
    }
    assert all(offer.instance_type.name != "p5e.48xlarge" for offer in build.catalog.offers)


def test_usage_classes_decide_what_is_offered():
    facts = replace(package_types()["g6.xlarge"], usage_classes=("on-demand",))
    built = build_catalog("us-east-1", {"g6.xlarge": facts}, {"g6.xlarge": ["us-east-1b"]}, package_prices("us-east-1"))
    assert [(offer.zone, offer.capacity_type) for offer in built.catalog.offers] == [("us-east-1b", "on-demand")]


def test_market_prices_beat_estimates_and_the_oldest_price_dates_the_catalogue():
    facts = {"g6.xlarge": package_types()["g6.xlarge"]}
    zones = {"g6.xlarge": ["us-east-1a", "us-east-1b"]}
    spot = SpotPrices({("g6.xlarge", "us-east-1a"): 0.31}, at_s=100.0)
    built = build_catalog("us-east-1", facts, zones, OnDemandPrices({"g6.xlarge": 1.0}, 200.0, "test"), spot)
    prices = [(o.zone, o.capacity_type, o.price_usd_h) for o in built.catalog.offers]
    assert prices == [
        ("us-east-1a", "on-demand", 1.0),
        ("us-east-1a", "spot", 0.31),
        ("us-east-1b", "on-demand", 1.0),
        ("us-east-1b", "spot", 0.4),
    ]
    assert built.catalog.priced_at_s == 100.0
    assert built.catalog.price_source == (
        "on-demand: test; spot: price history, 1 offers estimated at 0.40 x on-demand"
    )


def test_a_region_without_a_table_says_whose_prices_stand_in():
    assert package_prices("eu-west-1").source == (
        "package prices of 2026-07-20 for us-east-1, standing in for eu-west-1"
    )
    assert package_prices("us-gov-west-1").source == "package prices of 2026-07-20"
    chinese = package_prices("cn-north-1")
    assert chinese.source == "package prices of 2024-11-06, CNY at 0.14 USD"
    document = package()["prices"]["cn-north-1"]["hourly"]
    assert all(chinese.hourly_usd[name] == pytest.approx(price * 0.14) for name, price in document.items())


def test_a_region_without_known_zones_offers_nothing_and_invents_none():
    assert package_zones("mx-central-1", assumed=True) == {}
    built = package_catalog("mx-central-1")
    assert built.catalog.offers == ()
    assert len(built.left_out) == len(built.catalog.types)


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-east-1", "us-gov-west-1"])
def test_zones_that_nobody_recorded_are_good_for_plans_and_not_for_purchases(region):
    assert package_zones(region) == {}
    built = package_catalog(region).catalog
    assert built.price_region == region
    assert built.offers
    assert built.zones == {offer.zone for offer in built.offers}
    assert all(zone.startswith(region) for zone in built.zones)
    assert PackageListing(region).zones == built.zones


def test_every_offer_tells_the_source_the_region_and_the_age_of_its_price():
    for region in ("ap-south-1", "cn-north-1", "eu-west-1", "us-east-1", "us-gov-west-1"):
        catalog = package_catalog(region).catalog
        book = region if region in package()["prices"] else "us-east-1"
        at_s = datetime.fromisoformat(package()["prices"][book]["at"]).timestamp()
        assert catalog.price_region == book
        assert catalog.offers
        for offer in catalog.offers:
            assert (offer.priced.region, offer.priced.at_s) == (book, at_s)
            assert offer.priced.source.startswith("package prices" if offer.capacity_type != "spot" else "0.40 x")
        if book != region:
            assert f"for {book}, standing in for {region}" in catalog.price_source


def test_spot_prices_come_from_the_history_where_there_is_one():
    facts = {"g6.xlarge": package_types()["g6.xlarge"]}
    zones = {"g6.xlarge": ["eu-west-1a", "eu-west-1b"]}
    spot = SpotPrices({("g6.xlarge", "eu-west-1a"): 0.3}, 500.0)
    offers = build_catalog("eu-west-1", facts, zones, package_prices("eu-west-1"), spot).catalog.offers
    told = {offer.zone: offer.priced for offer in offers if offer.capacity_type == "spot"}
    assert told["eu-west-1a"] == PriceSource("spot price history", "eu-west-1", 500.0)
    assert told["eu-west-1b"].source == "0.40 x on-demand"
    assert told["eu-west-1b"].region == "us-east-1"


def test_zones_of_the_package_follow_the_region():
    zones = package_zones("eu-west-1")["g5.xlarge"]
    assert zones
    assert all(zone.startswith("eu-west-1") and len(zone) == len("eu-west-1a") for zone in zones)


def test_described_types_agree_with_the_package():
    dump = json.loads(gzip.decompress(files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()))
    compared = 0
    for name, known in package_types().items():
        found = describe_facts(dump[name]) if name in dump else None
        if found is None:
            continue
        compared += 1
        assert (
            replace(
                found,
                network_mbps=known.network_mbps,
                branch_enis=known.branch_enis,
                efa=known.efa,
                network_cards=known.network_cards,
                enis=known.enis,
            )
            == known
        ), name
    assert compared > 1300


def test_machines_that_cannot_run_linux_pods_are_skipped():
    dump = json.loads(gzip.decompress(files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()))
    assert describe_facts(dump["mac2.metal"]) is None


def test_the_card_that_cannot_carry_efa_is_known():
    types = package_types()
    assert types["p6-b300.48xlarge"].efa_card == 1
    assert {each.efa_card for each in types.values() if each.name != "p6-b300.48xlarge"} == {0}


def test_the_catalogue_needs_no_boto():
    code = (
        "import sys; from providers.aws.catalog import package_catalog; package_catalog('us-east-1');"
        "sys.exit(any(name in sys.modules for name in ('boto3', 'botocore', 'moto')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
