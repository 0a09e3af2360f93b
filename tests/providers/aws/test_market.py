import json
from datetime import UTC, datetime

import pytest
from botocore.stub import ANY

from fleet.markets import PastPrice
from fleet.snapshot import CapacityPool
from providers.aws.clients import pricing_region
from providers.aws.market import described_types, offered_zones, spot_history, spot_prices
from providers.aws.pricing import on_demand_prices, parse_products
from providers.aws.retry import Caller
from providers.ports import CloudRejected


@pytest.fixture
def caller(clock):
    return Caller(clock, sleep=clock.advance, rng=lambda: 0.0)


def product(name, price, *, unit="Hrs", currency="USD"):
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name}},
            "terms": {
                "OnDemand": {
                    "SKU.OFFER": {
                        "priceDimensions": {"SKU.OFFER.RATE": {"unit": unit, "pricePerUnit": {currency: price}}}
                    }
                }
            },
        }
    )


def test_products_are_read_and_broken_ones_skipped():
    texts = [
        product("g6.xlarge", "0.8048"),
        product("free.large", "0.0000"),
        product("monthly.large", "3", unit="Quantity"),
        product("cn.large", "10", currency="CNY"),
        product("odd.large", "1", currency="XAU"),
        product("word.large", "cheap"),
        json.dumps({"product": {}}),
        json.dumps([1, 2]),
        "{not json",
    ]
    assert dict(parse_products(texts)) == {"g6.xlarge": 0.8048, "cn.large": pytest.approx(1.4)}


def expected(**changes):
    fields = {
        "regionCode": "eu-west-1",
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        **changes,
    }
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]


def script(stubbed, pages):
    shared = expected(tenancy="Shared", productFamily="Compute Instance")
    metal = expected(tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    for filters, answers in zip((shared, metal), pages, strict=True):
        token = {}
        for index, texts in enumerate(answers):
            more = {"NextToken": f"page-{index}"} if index + 1 < len(answers) else {}
            stubbed.pricing.add_response(
                "get_products",
                {"PriceList": texts, **more},
                {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 100, **token},
            )
            token = more


def test_price_list_is_read_page_by_page(stubbed, caller):
    script(stubbed, [[[product("g6.xlarge", "0.8")], [product("g5.xlarge", "1.0")]], [[product("c7gd.metal", "3")]]])
    prices = on_demand_prices(caller, stubbed.clients.pricing, "eu-west-1", 7.0)
    assert prices.hourly_usd == {"g6.xlarge": 0.8, "g5.xlarge": 1.0, "c7gd.metal": 3.0}
    assert (prices.at_s, prices.source) == (7.0, "Pricing API")
    stubbed.pricing.assert_no_pending_responses()


def test_an_empty_price_list_is_no_price_list(stubbed, caller):
    script(stubbed, [[[]], [[]]])
    with pytest.raises(CloudRejected, match="eu-west-1 is empty"):
        on_demand_prices(caller, stubbed.clients.pricing, "eu-west-1", 7.0)


@pytest.mark.parametrize(
    ("region", "home"),
    [
        ("us-west-2", "us-east-1"),
        ("eu-west-1", "eu-central-1"),
        ("ap-northeast-1", "ap-south-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_the_pricing_api_lives_in_few_regions(region, home):
    assert pricing_region(region) == home


def spot_row(price, at_s, *, zone="us-east-1a", name="g6.xlarge"):
    return {
        "InstanceType": name,
        "AvailabilityZone": zone,
        "SpotPrice": price,
        "ProductDescription": "Linux/UNIX",
        "Timestamp": datetime.fromtimestamp(at_s, UTC),
    }


def test_spot_prices_are_the_latest_and_old_ones_are_not_believed(stubbed, caller, clock):
    now_s, day = clock.now(), 86400
    stubbed.ec2.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": [spot_row("0.30", now_s - day), spot_row("0.35", now_s - 60)], "NextToken": "more"},
        {"StartTime": ANY, "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"], "MaxResults": 1000},
    )
    stubbed.ec2.add_response(
        "describe_spot_price_history",
        {
            "SpotPriceHistory": [
                spot_row("0.20", now_s - 2 * day),
                spot_row("0.00001", 1136214245, zone="us-east-1b"),
                spot_row("0.5", now_s - 7 * day - 1, zone="us-east-1c"),
                spot_row("0", now_s, zone="us-east-1d"),
                spot_row("0.6", now_s - 7 * day, zone="us-east-1e"),
            ]
        },
        {"StartTime": ANY, "ProductDescriptions": ANY, "MaxResults": 1000, "NextToken": "more"},
    )
    found = spot_prices(caller, stubbed.clients.ec2, now_s, start=datetime.fromtimestamp(now_s, UTC))
    assert found.hourly_usd == {("g6.xlarge", "us-east-1a"): 0.35, ("g6.xlarge", "us-east-1e"): 0.6}
    assert found.at_s == now_s


def test_past_prices_are_in_order_and_those_of_both_products_are_one(stubbed, caller, clock):
    now_s, day = clock.now(), 86_400
    begin_s, end_s = now_s - 3 * day, now_s - day
    pool = CapacityPool("spot", "g6.xlarge", "us-east-1a")
    rows = [
        spot_row("0.35", now_s - 2 * day),
        spot_row("0.34", now_s - 2 * day),
        spot_row("0.30", begin_s - 60),
        spot_row("0.99", end_s),
        spot_row("0.98", begin_s - 8 * day),
        spot_row("0.5", begin_s, zone="us-east-1b"),
    ]
    stubbed.ec2.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": rows},
        {
            "InstanceTypes": ["g6.xlarge"],
            "StartTime": datetime.fromtimestamp(begin_s, UTC),
            "EndTime": datetime.fromtimestamp(end_s, UTC),
            "ProductDescriptions": ANY,
            "MaxResults": 1000,
        },
    )
    found = spot_history(caller, stubbed.clients.ec2, [pool], begin_s, end_s)
    assert found == {pool: [PastPrice(begin_s - 60, 0.3), PastPrice(now_s - 2 * day, 0.35)]}


def test_zones_of_each_type(stubbed, caller):
    stubbed.ec2.add_response(
        "describe_instance_type_offerings",
        {
            "InstanceTypeOfferings": [
                {"InstanceType": "g6.xlarge", "Location": "us-east-1b"},
                {"InstanceType": "g6.xlarge", "Location": "us-east-1a"},
                {"InstanceType": "g6.xlarge", "Location": "us-east-1b"},
            ]
        },
        {"LocationType": "availability-zone", "MaxResults": 1000},
    )
    assert offered_zones(caller, stubbed.clients.ec2) == {"g6.xlarge": ["us-east-1a", "us-east-1b"]}


def test_unknown_types_are_described_a_hundred_at_a_time(stubbed, caller):
    names = [f"new.{number:03}" for number in range(150)]
    for some in (names[:100], names[100:]):
        stubbed.ec2.add_response(
            "describe_instance_types",
            {"InstanceTypes": []},
            {"Filters": [{"Name": "instance-type", "Values": some}], "MaxResults": 100},
        )
    assert described_types(caller, stubbed.clients.ec2, reversed(names)) == {}
    stubbed.ec2.assert_no_pending_responses()
