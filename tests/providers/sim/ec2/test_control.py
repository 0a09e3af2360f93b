"""The control routes, over HTTP as curl would."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from providers.sim.ec2 import FakeAws, Quota, RegionMarket
from tests.providers.sim.ec2.api import Api
from tests.providers.sim.ec2.rigs import pool


def call(fake: FakeAws, route: str, body: object = None, content_type: str = "application/json") -> tuple[int, Any]:
    """Status and decoded answer; a GET without a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{fake.url}/muster-sim/{route}", data, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_shortage_on_and_off(fake: FakeAws) -> None:
    chosen = {"instance_type": "g6.xlarge", "zone": "us-east-1a"}
    assert call(fake, "shortage", chosen) == (200, {})
    assert fake.market.short(pool())
    assert not fake.market.short(pool(zone="us-east-1b"))
    call(fake, "shortage", chosen | {"on": False})
    assert not fake.market.short(pool())


def test_lying_pools(fake: FakeAws) -> None:
    call(fake, "lying", {"capacity_type": "spot"})
    assert fake.market.lies(pool("spot"))
    assert not fake.market.lies(pool())


def test_capacity_takes_spot_machines_back(fake: FakeAws) -> None:
    ids = Api(fake).fleet(3, capacity_type="spot")["Instances"][0]["InstanceIds"]
    one = {"capacity_type": "spot", "instance_type": "g6.xlarge", "zone": "us-east-1a"}
    assert call(fake, "capacity", one | {"machines": 1}) == (200, {"interrupted": ids[1:]})
    assert fake.market.capacity(pool("spot")) == 1
    call(fake, "capacity", one | {"machines": None})
    assert fake.market.capacity(pool("spot")) is None


def test_quotas(fake: FakeAws, market: RegionMarket) -> None:
    call(fake, "quota", {"spot": True, "group": "P", "vcpus": 10})
    assert market.quotas == {Quota(spot=True, group="P"): 10}
    call(fake, "quota", {"spot": True, "group": "P", "vcpus": None})
    assert market.quotas == {}


def test_faults_are_set_and_shown(fake: FakeAws) -> None:
    status, faults = call(fake, "faults", {"lost_answers": 2, "late_by_s": 7.5, "shortage_after": 3})
    assert (status, faults["lost_answers"], faults["late_by_s"], faults["shortage_after"]) == (200, 2, 7.5, 3)
    call(fake, "faults", {"shortage_after": None})
    assert fake.market.faults.shortage_after is None
    assert call(fake, "market")[1]["faults"]["lost_answers"] == 2


def test_machines_and_money_can_be_seen(fake: FakeAws) -> None:
    (machine,) = Api(fake).fleet(1, capacity_type="spot")["Instances"][0]["InstanceIds"]
    assert [one["instance_id"] for one in call(fake, "machines")[1]] == [machine]
    (entry,) = call(fake, "ledger")[1]
    assert (entry["instance_id"], entry["ended_at_s"], entry["pool"]["capacity_type"]) == (machine, None, "spot")
    (shown,) = call(fake, "market")[1]["pools"]
    assert (shown["in_use"], shown["capacity"], shown["price_usd_h"]) == (1, None, entry["price_usd_h"])


@pytest.mark.parametrize("route", ["interrupt", "rebalance", "schedule-change", "kill"])
def test_events_of_one_machine(fake: FakeAws, route: str) -> None:
    (machine,) = Api(fake).fleet(1, capacity_type="spot")["Instances"][0]["InstanceIds"]
    assert call(fake, route, {"instance_id": machine}) == (200, {})
    assert call(fake, route, {"instance_id": "i-00000000000000000"})[0] == 400
    assert call(fake, route, {})[0] == 400


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("faults", {"no_such": 1}),
        ("faults", {"lost_answers": -1}),
        ("faults", {"lost_answers": "two"}),
        ("faults", {"lost_answers": True}),
        ("shortage", {"capacity_type": "free"}),
        ("shortage", {"zones": "us-east-1a"}),
        ("shortage", {"on": "yes"}),
        ("shortage", [1]),
        ("capacity", {"instance_type": "g6.xlarge"}),
        ("capacity", {"instance_type": "g6.xlarge", "zone": "a", "capacity_type": "spot", "machines": -1}),
        ("quota", {"vcpus": 3}),
        ("interrupt", {"instance_id": "i-00000000000000000", "notice_s": "soon"}),
    ],
)
def test_a_body_that_does_not_fit_changes_nothing(fake: FakeAws, route: str, body: object) -> None:
    before = call(fake, "market")
    status, answer = call(fake, route, body)
    assert (status, bool(answer["error"])) == (400, True)
    assert call(fake, "market") == before


def test_no_route_no_form_and_no_reset_of_everybody(fake: FakeAws) -> None:
    assert call(fake, "nothing")[0] == 404
    assert call(fake, "shortage")[0] == 404
    assert call(fake, "shortage", {}, content_type="text/plain")[0] == 400
    assert not fake.market.short(pool())
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(f"{fake.url}/moto-api/reset", b""), timeout=10)
    with error.value:
        assert error.value.code == 404


def test_a_route_that_another_part_of_the_simulation_answers(fake: FakeAws) -> None:
    heard: list[Any] = []

    def mig(body: Any) -> None:
        if "node" not in body:
            raise ValueError("give node")
        heard.append(body)

    assert call(fake, "mig", {"node": "n"})[0] == 404
    fake.also("mig", mig)
    assert call(fake, "mig", {"node": "n", "hang": True}) == (200, {})
    assert call(fake, "mig", {}) == (400, {"error": "give node"})
    assert heard == [{"node": "n", "hang": True}]
