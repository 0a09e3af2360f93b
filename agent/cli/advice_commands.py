"""The commands that advise, `muster layouts` and `muster gpus`, and their options."""

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AgentSettings, FleetCluster

layouts = typer.Typer(
    name="layouts", help="How GPUs should be cut by MIG.", no_args_is_help=True, rich_markup_mode=None
)
gpus = typer.Typer(name="gpus", help="What pods use of GPUs.", no_args_is_help=True, rich_markup_mode=None)


@gpus.command("advise")
def gpus_advise(
    exporter: Annotated[
        list[str] | None, typer.Option("--exporter", help="A dcgm-exporter: http://HOST:9400/metrics; may be repeated.")
    ] = None,
    scrape: Annotated[
        list[Path] | None, typer.Option("--scrape", help="A file with an answer of one; may be repeated.")
    ] = None,
    lasts: Annotated[str, typer.Option("--for", help="How long exporters are asked (30m); default: once.")] = "",
    every: Annotated[float, typer.Option("--every", min=1, help="Seconds between two questions.")] = 30.0,
    idle_after: Annotated[str, typer.Option("--idle-after", help="Who does nothing for so long is named.")] = "30m",
    region: Annotated[str, typer.Option("--region", help="Region of the prices.")] = "",
) -> None:
    """What pods use of the GPUs and slices they hold, by DCGM: what would be enough, USD a month saved, who is idle."""
    from agent.cli.gpus import UseRequest, advise_gpus
    from agent.cli.replay import duration_s

    if not exporter and not scrape:
        raise typer.BadParameter("--exporter or --scrape says where readings come from")
    try:
        lasts_s, idle_after_s = duration_s(lasts) if lasts else 0.0, duration_s(idle_after)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    request = UseRequest(exporter or (), scrape or (), lasts_s, every, idle_after_s, region)
    raise typer.Exit(advise_gpus(request))


@layouts.command("advise")
def layouts_advise(
    path: Annotated[Path, typer.Argument(help="The fleet's files.")] = Path(),
    recorded: Annotated[
        Path | None, typer.Option("--recorded", help="Work that the agent recorded; default: `record` of its settings.")
    ] = None,
    trace: Annotated[Path | None, typer.Option("--trace", help="Work, in the formats of `muster replay`.")] = None,
    demand: Annotated[
        Path | None, typer.Option("--demand", help="Slices wanted at once instead: {1g.10gb: 40} (YAML, JSON).")
    ] = None,
    window: Annotated[str, typer.Option("--window", help="The last of the work that counts (14d); default: all.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Only this node pool; default: all that cut their GPUs.")] = "",
    cover: Annotated[
        float, typer.Option("--cover", min=0.01, max=1, help="Part of the time in which nobody is to wait for a slice.")
    ] = 0.95,
    look: Annotated[float, typer.Option("--look", min=0, help="As in `muster replay`.")] = 60.0,
    region: Annotated[str, typer.Option("--region", help="Region of the prices; default: that of its zones.")] = "",
    cluster: FleetCluster = "",
    config: AgentSettings = Path("muster.yaml"),
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Open it on the forge of the settings (`review`).")
    ] = False,
) -> None:
    """Which MIG layouts the demand asks for: the fewest machines, as a diff, with waits replayed before and after."""
    from agent.cli.layouts import AdviceRequest, advise_layouts

    if sum(it is not None for it in (recorded, trace, demand)) > 1:
        raise typer.BadParameter("one of --recorded, --trace and --demand says what is asked for")
    request = AdviceRequest(
        path, pool, demand, trace or recorded, window, cover, look, region, cluster, config, pull_request
    )
    raise typer.Exit(advise_layouts(request))
