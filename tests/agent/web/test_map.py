"""How one machine is drawn on the map of the fleet."""

from dataclasses import replace
from typing import Any

import pytest

from agent.web.views_machines import OTHERS, PALETTE, ShownTile, TileCell, draw
from fleet.explain.machine_tiles import DeviceUse, MachineTile
from tests.support.fleets import GPU

NUMBERS = {"blue": 0, "red": 1}


def tile(*devices: DeviceUse, **more: Any) -> MachineTile:
    plain = MachineTile(
        "m0", "n0", "h100", "Ready", "", "p5.48xlarge", "us-east-1a", "spot", "", 40.0, devices, (), ("red",)
    )
    return replace(plain, **more)


def drawn(*devices: DeviceUse, **more: Any) -> ShownTile:
    return draw(tile(*devices, **more), NUMBERS, True)


def test_each_gpu_is_a_cell() -> None:
    assert drawn(DeviceUse(GPU, 3, 2)).cells == (TileCell("gpu", True), TileCell("gpu", True), TileCell("gpu", False))


def test_slices_have_their_size() -> None:
    cells = drawn(DeviceUse("nvidia.com/mig-1g.10gb", 2, 1), DeviceUse("nvidia.com/mig-3g.40gb", 1, 0)).cells
    assert cells == (TileCell("1", True), TileCell("1", False), TileCell("3", False))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-odd", "nvidia.com/mig-<b>g.1gb"])
def test_what_has_no_size_is_a_gpu(resource: str) -> None:
    assert {cell.size for cell in drawn(DeviceUse(resource, 2, 0)).cells} == {"gpu"}


def test_no_more_cells_than_a_tile_holds() -> None:
    assert len(drawn(DeviceUse(GPU, 10_000, 1)).cells) == 64


def test_of_many_machines_none_is_drawn_in_cells() -> None:
    assert draw(tile(DeviceUse(GPU, 8, 8)), NUMBERS, False).cells == ()


@pytest.mark.parametrize(
    ("teams", "number", "words"),
    [(("red",), 1, "red"), ((), -1, ""), (("secret",), PALETTE, OTHERS), (("blue", "secret"), 0, f"blue, {OTHERS}")],
)
def test_its_colour_is_that_of_its_first_team(teams: tuple[str, ...], number: int, words: str) -> None:
    found = drawn(DeviceUse(GPU, 8, 4), teams=teams)
    assert found.team == number
    assert found.words == " · ".join(filter(None, ("m0", "p5.48xlarge", "us-east-1a", "Ready", "4/8 gpu", words)))
    assert "secret" not in found.words


@pytest.mark.parametrize(("usd_h", "shade"), [(0.0, 0), (0.99, 0), (1.0, 1), (40.0, 4), (98.0, 5), (500.0, 6)])
def test_its_shade_is_its_cost(usd_h: float, shade: int) -> None:
    assert drawn(usd_h=usd_h).cost == shade
