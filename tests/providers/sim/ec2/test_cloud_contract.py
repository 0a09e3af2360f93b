"""What the agent may rely on of any cloud, and what it must survive: alike without a wire and on the EC2 API."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fleet.snapshot import LaunchConfiguration, LaunchError, LaunchOutcome, NoticeKind
from model.labels import ADOPT
from providers.ports import CloudRejected, CloudThrottled, CloudUnreachable
from providers.sim.controllers.userdata import kubelet_arguments
from providers.sim.ec2 import PoolFilter, Quota
from tests.providers.sim.ec2.rigs import PRICES, CloudRig, launch_request, pool


def errors(outcome: LaunchOutcome) -> list[LaunchError]:
    return [failure.error for failure in outcome.failures]


def states(rig: CloudRig) -> list[str]:
    return [instance.state for instance in rig.cloud.instances()]


def bought(rig: CloudRig) -> int:
    return len(rig.account.ledger())


# Launching


def test_a_launch_brings_all_machines_it_asked_for(rig: CloudRig) -> None:
    wanted = pool("spot", "p5.48xlarge", "us-east-1b")
    outcome = rig.cloud.launch(launch_request("a", 4, wanted))
    assert outcome.failures == ()
    assert len(set(outcome.instances)) == 4
    listed = rig.cloud.instances()
    assert tuple(instance.id for instance in listed) == outcome.instances
    for instance in listed:
        assert (instance.instance_type, instance.zone, instance.capacity_type) == ("p5.48xlarge", "us-east-1b", "spot")
        assert instance.tags["muster.dev/launch-group"] == "a"
        assert instance.state == "pending"
        assert instance.launched_at_s == rig.clock.now()


def test_names_stand_for_what_a_launch_got(rig: CloudRig) -> None:
    request = launch_request("a")
    rig.cloud.launch(request)
    (machine,) = rig.cloud.instances()
    found = rig.cloud.resolve([LaunchConfiguration("hash", request.template, (request.image_kind,))])["hash"]
    assert found.images == {request.image_kind: machine.image}
    assert found.subnets[machine.subnet] == machine.security_groups
    assert all((machine.image, machine.subnet, machine.security_groups))
    assert rig.cloud.resolve([]) == {}


def test_of_a_machine_that_is_gone_only_the_image_is_told(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("a"))
    (before,) = rig.cloud.instances()
    rig.cloud.terminate([before.id])
    (after,) = rig.cloud.instances()
    assert (after.image, after.subnet, after.security_groups) == (before.image, "", ())


def test_no_two_machines_share_a_name(rig: CloudRig) -> None:
    for token in "abc":
        rig.cloud.launch(launch_request(token, 3))
    names = [instance.private_dns for instance in rig.cloud.instances()]
    assert len(set(names)) == 9
    assert all(name.startswith("ip-") and name.endswith(".ec2.internal") for name in names)


def test_fewer_than_asked_is_none(rig: CloudRig) -> None:
    rig.market.set_capacity(pool(), 3)
    outcome = rig.cloud.launch(launch_request("a", 4))
    assert outcome.instances == ()
    assert errors(outcome) == [LaunchError.SHORTAGE]
    assert outcome.failures[0].code == "InsufficientInstanceCapacity"
    assert (bought(rig), rig.market.in_use(pool()), list(rig.cloud.instances())) == (0, 0, [])
    assert len(rig.cloud.launch(launch_request("b", 3)).instances) == 3


def test_a_shortage_is_of_its_pool_alone(rig: CloudRig) -> None:
    rig.market.set_shortage(PoolFilter(instance_type="g6.xlarge", zone="us-east-1a"))
    assert errors(rig.cloud.launch(launch_request("a"))) == [LaunchError.SHORTAGE]
    assert errors(rig.cloud.launch(launch_request("b", 1, pool("spot")))) == [LaunchError.SHORTAGE]
    assert rig.cloud.launch(launch_request("c", 1, pool(zone="us-east-1b"))).instances
    rig.market.set_shortage(PoolFilter(instance_type="g6.xlarge", zone="us-east-1a"), on=False)
    assert rig.cloud.launch(launch_request("d")).instances


def test_a_cloud_that_lies_hands_out_fewer_and_they_are_real(rig: CloudRig) -> None:
    rig.market.set_capacity(pool(), 3)
    rig.market.set_lying(PoolFilter.only(pool()))
    outcome = rig.cloud.launch(launch_request("a", 4))
    assert len(outcome.instances) == 3
    assert errors(outcome) == [LaunchError.SHORTAGE]
    assert tuple(instance.id for instance in rig.cloud.instances()) == outcome.instances


def test_machines_run_out_after_so_many(rig: CloudRig) -> None:
    rig.market.faults.shortage_after = 5
    assert len(rig.cloud.launch(launch_request("a", 4)).instances) == 4
    assert errors(rig.cloud.launch(launch_request("b", 2))) == [LaunchError.SHORTAGE]
    assert len(rig.cloud.launch(launch_request("c", 1)).instances) == 1
    assert errors(rig.cloud.launch(launch_request("d", 1))) == [LaunchError.SHORTAGE]


@pytest.mark.parametrize(
    ("capacity_type", "code"), [("on-demand", "VcpuLimitExceeded"), ("spot", "MaxSpotInstanceCountExceeded")]
)
def test_the_account_limit_is_no_shortage(rig: CloudRig, capacity_type: str, code: str) -> None:
    rig.market.set_quota(Quota(capacity_type == "spot", "P"), 2 * 192)
    wanted = pool(capacity_type, "p5.48xlarge")  # type: ignore[arg-type]
    outcome = rig.cloud.launch(launch_request("a", 3, wanted))
    assert (outcome.instances, errors(outcome), outcome.failures[0].code) == ((), [LaunchError.QUOTA], code)
    assert len(rig.cloud.launch(launch_request("b", 2, wanted)).instances) == 2


def test_a_type_the_zone_does_not_have_is_a_mistake(rig: CloudRig) -> None:
    outcome = rig.cloud.launch(launch_request("a", 1, pool("on-demand", "g6.xlarge", "us-east-1e")))
    assert (outcome.instances, errors(outcome)) == ((), [LaunchError.MISCONFIGURED])


def test_a_label_that_is_none_is_a_mistake(rig: CloudRig) -> None:
    outcome = rig.cloud.launch(replace(launch_request("a"), labels={"x": "no,comma"}))
    assert (outcome.instances, errors(outcome), bought(rig)) == ((), [LaunchError.MISCONFIGURED], 0)


# The same token


def test_the_same_token_never_buys_twice(rig: CloudRig) -> None:
    first = rig.cloud.launch(launch_request("a", 3))
    assert rig.cloud.launch(launch_request("a", 3)) == first
    assert bought(rig) == 3


def test_the_same_token_at_once_from_many_threads_buys_once(rig: CloudRig) -> None:
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda _: rig.cloud.launch(launch_request("a", 2)), range(8)))
    assert {outcome.instances for outcome in outcomes} == {outcomes[0].instances}
    assert bought(rig) == 2


def test_the_same_token_names_its_machines_even_when_they_are_gone(rig: CloudRig) -> None:
    first = rig.cloud.launch(launch_request("a", 2))
    rig.cloud.terminate(first.instances)
    assert rig.cloud.launch(launch_request("a", 2)).instances == first.instances
    assert bought(rig) == 2


def test_the_same_token_repeats_a_shortage(rig: CloudRig) -> None:
    """EC2 remembers the answer, so that a new attempt needs a new token."""
    rig.market.set_shortage(PoolFilter())
    assert errors(rig.cloud.launch(launch_request("a"))) == [LaunchError.SHORTAGE]
    rig.market.set_shortage(PoolFilter(), on=False)
    assert errors(rig.cloud.launch(launch_request("a"))) == [LaunchError.SHORTAGE]
    assert rig.cloud.launch(launch_request("b")).instances


@pytest.mark.parametrize(("count", "failures"), [(1, []), (2, []), (3, [LaunchError.UNKNOWN])])
def test_a_token_used_for_another_request_buys_nothing_and_names_what_there_is(
    rig: CloudRig, count: int, failures: list[LaunchError]
) -> None:
    first = rig.cloud.launch(launch_request("a", 2))
    again = rig.cloud.launch(replace(launch_request("a", count), node_pool="other", labels={"x": "y"}))
    assert (again.instances, errors(again), bought(rig)) == (first.instances, failures, 2)


def test_a_lost_answer_is_found_again_by_its_token(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("warm"))
    rig.market.faults.lost_answers = 1
    lost = rig.cloud.launch(launch_request("a", 3))
    assert (lost.instances, errors(lost)) == ((), [LaunchError.UNKNOWN])
    again = rig.cloud.launch(launch_request("a", 3))
    assert (len(again.instances), again.failures, bought(rig)) == (3, (), 4)


def test_a_lost_request_bought_nothing_and_may_be_repeated(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("warm"))
    rig.market.faults.dropped_calls = 1
    assert errors(rig.cloud.launch(launch_request("a", 3))) == [LaunchError.UNKNOWN]
    assert bought(rig) == 1
    assert len(rig.cloud.launch(launch_request("a", 3)).instances) == 3
    assert bought(rig) == 4


def test_too_many_calls_are_refused_before_anything_happens(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("warm"))
    rig.market.faults.throttled_calls = 50
    assert errors(rig.cloud.launch(launch_request("a"))) == [LaunchError.THROTTLED]
    with pytest.raises(CloudThrottled):
        rig.cloud.instances()
    rig.market.faults.throttled_calls = 0
    assert bought(rig) == 1


def test_a_cloud_out_of_reach_says_so(rig: CloudRig) -> None:
    rig.market.faults.dropped_calls = 50
    with pytest.raises(CloudUnreachable):
        rig.cloud.instances()


# Living and ending


def test_a_machine_runs_after_a_while(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("a"))
    rig.wait(9)
    assert states(rig) == ["pending"]
    rig.wait(1)
    assert states(rig) == ["running"]


def test_a_slow_machine_takes_longer(rig: CloudRig) -> None:
    rig.market.faults.slow_boots, rig.market.faults.slow_boot_s = 1, 300
    rig.cloud.launch(launch_request("a", 2))
    rig.wait(10)
    assert sorted(states(rig)) == ["pending", "running"]
    rig.wait(300)
    assert states(rig) == ["running", "running"]


def test_ending_machines_stops_the_bill_and_frees_capacity(rig: CloudRig) -> None:
    rig.market.set_capacity(pool(), 2)
    ids = rig.cloud.launch(launch_request("a", 2)).instances
    rig.wait(3600)
    rig.cloud.terminate(ids)
    assert states(rig) == ["shutting-down", "shutting-down"]
    assert errors(rig.cloud.launch(launch_request("b", 1))) == [LaunchError.SHORTAGE]
    rig.wait(20)
    assert states(rig) == ["terminated", "terminated"]
    assert all(instance.gone for instance in rig.cloud.instances())
    assert rig.cloud.launch(launch_request("c", 2)).instances
    for entry in rig.account.ledger()[:2]:
        assert entry.ended_at_s == entry.launched_at_s + 3600
        assert entry.cost_usd == pytest.approx(PRICES["g6.xlarge"])
        assert entry.reason == "Client.UserInitiatedShutdown"


def test_what_is_long_gone_is_no_longer_listed(rig: CloudRig) -> None:
    rig.cloud.terminate(rig.cloud.launch(launch_request("a")).instances)
    rig.wait(3700)
    assert list(rig.cloud.instances()) == []
    assert bought(rig) == 1


def test_ending_twice_and_ending_strangers_is_fine(rig: CloudRig) -> None:
    ids = rig.cloud.launch(launch_request("a", 3)).instances
    rig.cloud.terminate([*ids[:2], "i-00000000000000000", *ids[:1]])
    rig.cloud.terminate([*ids, "i-0ffffffffffffffff"])
    rig.cloud.terminate(ids)
    rig.cloud.terminate([])
    rig.wait(20)
    assert states(rig) == ["terminated"] * 3


def test_only_machines_of_the_cluster_are_listed(rig: CloudRig) -> None:
    ours = rig.cloud.launch(launch_request("a")).instances
    assert rig.cloud.launch(launch_request("b", cluster="another")).instances
    assert tuple(instance.id for instance in rig.cloud.instances()) == ours


@pytest.mark.parametrize(
    ("said", "listed"), [("default/gpu", True), ("default/", True), ("default", False), ("default2/gpu", False)]
)
def test_machines_that_ask_for_adoption_are_listed_with_them(rig: CloudRig, said: str, listed: bool) -> None:
    ours = rig.cloud.launch(launch_request("a")).instances
    (theirs,) = rig.cloud.launch(launch_request("b", cluster="another")).instances
    rig.cloud.tag(theirs, {ADOPT: said})
    rig.cloud.tag(ours[0], {ADOPT: said})
    assert [it.id for it in rig.cloud.instances()] == sorted([*ours, *([theirs] if listed else [])])


def test_a_machine_may_be_listed_late(rig: CloudRig) -> None:
    """EC2 is eventually consistent: what was just bought may be unknown to it, even to the call that ends it."""
    rig.market.faults.late_listings = 1
    ids = rig.cloud.launch(launch_request("a")).instances
    assert list(rig.cloud.instances()) == []
    rig.cloud.terminate(ids)
    rig.wait(5)
    assert [(instance.id, instance.gone) for instance in rig.cloud.instances()] == [(ids[0], False)]


def test_tags_are_added_and_overwritten(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a")).instances
    rig.cloud.tag(machine, {"muster.dev/claim": "c1", "muster.dev/launch-group": "z"})
    (instance,) = rig.cloud.instances()
    assert (instance.tags["muster.dev/claim"], instance.tags["muster.dev/launch-group"]) == ("c1", "z")
    with pytest.raises(CloudRejected):
        rig.cloud.tag("i-00000000000000000", {"a": "b"})


def test_a_machine_knows_how_to_become_its_node(rig: CloudRig) -> None:
    rig.cloud.launch(launch_request("a"))
    (machine,) = rig.account.machines()
    arguments = kubelet_arguments(machine.user_data)
    assert arguments.labels["muster.dev/node-pool"] == "gpu"
    assert [(taint["key"], taint["effect"]) for taint in arguments.taints] == [("muster.dev/unregistered", "NoExecute")]
    assert rig.account.boot_delay_s(machine) == 60


def test_a_machine_may_never_become_a_node(rig: CloudRig) -> None:
    rig.market.faults.never_boots = 1
    rig.cloud.launch(launch_request("a", 2))
    rig.wait(10)
    delays = [rig.account.boot_delay_s(machine) for machine in rig.account.machines()]
    assert sorted(delays, key=str) == [60, None]
    assert states(rig) == ["running", "running"]


# Notices


def test_an_interruption_warns_and_then_ends_the_machine(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a", 1, pool("spot"))).instances
    rig.wait(60)
    rig.account.interrupt(machine)
    warned = rig.drain()
    assert [(notice.kind, notice.instance_ids) for notice in warned] == [(NoticeKind.SPOT_INTERRUPTED, (machine,))]
    assert (warned[0].at_s, warned[0].due_s, warned[0].source) == (rig.clock.now(), rig.clock.now() + 120, "EC2")
    rig.wait(119)
    assert (states(rig), rig.drain()) == (["running"], [])
    rig.wait(1)
    assert states(rig) == ["shutting-down"]
    assert [notice.kind for notice in rig.drain()] == [NoticeKind.INSTANCE_TERMINATED]
    (entry,) = rig.account.ledger()
    assert (entry.ended_at_s, entry.reason) == (entry.launched_at_s + 180, "Server.SpotInstanceTermination")


def test_a_machine_dies_without_a_warning(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a")).instances
    rig.account.kill(machine)
    assert states(rig) == ["terminated"]
    assert {(notice.kind, notice.instance_ids) for notice in rig.drain()} == {
        (NoticeKind.INSTANCE_TERMINATED, (machine,))
    }


def test_advice_and_retirement_are_told_apart(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a")).instances
    rig.account.rebalance(machine)
    rig.account.schedule_change(machine)
    found = {(notice.kind, notice.source) for notice in rig.drain()}
    assert found == {(NoticeKind.REBALANCE_RECOMMENDATION, "EC2"), (NoticeKind.SCHEDULED_CHANGE, "AWS Health")}
    assert states(rig) == ["pending"]


def test_a_message_may_come_twice(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a", 1, pool("spot"))).instances
    rig.market.faults.duplicate_messages = 1
    rig.account.interrupt(machine)
    assert [(notice.kind, notice.instance_ids) for notice in rig.drain()] == [
        (NoticeKind.SPOT_INTERRUPTED, (machine,))
    ] * 2


def test_a_message_may_come_late_even_after_the_end(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a", 1, pool("spot"))).instances
    rig.market.faults.late_messages, rig.market.faults.late_by_s = 1, 130
    interrupted_at_s = rig.clock.now()
    rig.account.interrupt(machine)
    rig.wait(125)
    assert [notice.kind for notice in rig.drain()] == [NoticeKind.INSTANCE_TERMINATED]
    rig.wait(5)
    late = [notice for notice in rig.drain() if notice.kind == NoticeKind.SPOT_INTERRUPTED]
    assert [(notice.instance_ids, notice.at_s) for notice in late] == [((machine,), interrupted_at_s)]


def test_a_message_comes_again_until_it_is_acknowledged(rig: CloudRig) -> None:
    (machine,) = rig.cloud.launch(launch_request("a")).instances
    rig.account.rebalance(machine)
    (first,) = rig.notices.receive(0)
    rig.lapse()
    (second,) = rig.notices.receive(0)
    assert (first.id, first.kind) == (second.id, second.kind)
    rig.notices.acknowledge([second])
    rig.lapse()
    assert list(rig.notices.receive(0)) == []


def test_at_most_ten_messages_at_a_time(rig: CloudRig) -> None:
    machines = rig.cloud.launch(launch_request("a", 12)).instances
    for machine in machines:
        rig.account.rebalance(machine)
    assert 0 < len(rig.notices.receive(0)) <= 10
    rig.lapse()
    told = {instance_id for notice in rig.drain() for instance_id in notice.instance_ids}
    assert told == set(machines)


# Prices


def test_spot_prices_are_those_of_the_market_when_refreshed(rig: CloudRig) -> None:
    wanted = pool("spot", "p5.48xlarge", "us-east-1b")

    def offered() -> float:
        return next(o.price_usd_h for o in rig.cloud.catalog().offers if o.pool_key == wanted)

    rig.cloud.refresh()
    assert offered() == rig.market.price_usd_h(wanted, rig.clock.now())
    before = offered()
    rig.wait(86_400)
    assert offered() == before
    assert rig.cloud.refresh().offers
    assert offered() == rig.market.price_usd_h(wanted, rig.clock.now()) != before


def test_past_spot_prices_are_those_of_the_market_at_the_time(rig: CloudRig) -> None:
    ours, other = pool("spot", "p5.48xlarge", "us-east-1b"), pool("spot", "p5.48xlarge", "us-east-1a")
    begin_s = rig.clock.now() - 1000
    rig.wait(30 * 3600)
    end_s = rig.clock.now() - 7200
    found = rig.cloud.spot_history({ours, other, pool("on-demand", "p5.48xlarge", "us-east-1b")}, begin_s, end_s)
    assert found.keys() == {ours, other}
    for sold, prices in found.items():
        times = [it.since_s for it in prices]
        assert times == sorted(set(times))
        assert times[0] <= begin_s < times[1], "the first was in force at the begin"
        assert times[-1] <= end_s
        assert [it.usd_h for it in prices] == [rig.market.price_usd_h(sold, at_s) for at_s in times]
        hours = {begin_s // 3600 + n for n in range(int(end_s // 3600 - begin_s // 3600) + 1)}
        assert {at_s // 3600 for at_s in times} == hours
    assert found[ours] != found[other]


def test_of_a_pool_that_is_not_sold_no_past_price_is_told(rig: CloudRig) -> None:
    now_s = rig.clock.now()
    assert rig.cloud.spot_history([pool("spot", "p5.48xlarge", "eu-west-3c")], now_s - 86_400, now_s) == {}
    assert rig.cloud.spot_history([], now_s - 86_400, now_s) == {}
