"""The commands that advise, `muster layouts` and `muster gpus`, and their options."""

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import (
    AGENT_VARIABLE,
    AgentSettings,
    Context,
    FleetCluster,
    Kubeconfig,
    agent_address,
    duration_s,
)

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
    agent: Annotated[
        str, typer.Option("--agent", help="Its page, for the readings it keeps; default: $MUSTER_AGENT.")
    ] = "",
    fleet: Annotated[
        Path | None, typer.Option("--fleet", help="The fleet's files: which layouts would give what is enough.")
    ] = None,
    pool: Annotated[str, typer.Option("--pool", help="With --fleet: only this node pool.")] = "",
    cluster: FleetCluster = "",
    config: AgentSettings = Path("muster.yaml"),
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="With --fleet: open it on the forge of the settings (`review`).")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What pods use of the GPUs and slices they hold, by DCGM: what would be enough, USD a month saved, who is idle."""
    address = agent_address(agent)
    if not (exporter or scrape or address):
        raise typer.BadParameter(f"--agent ({AGENT_VARIABLE}), --exporter or --scrape says where readings come from")
    if fleet is None and (pull_request or pool):
        raise typer.BadParameter("--pull-request and --pool are about the fleet's files: give --fleet")
    try:
        lasts_s, idle_after_s = duration_s(lasts) if lasts else 0.0, duration_s(idle_after)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if fleet is None and not (exporter or scrape or region):
        from agent.cli.explain import print_asked

        raise typer.Exit(print_asked(address, f"/api/gpus?idleAfterS={idle_after_s:.0f}", (kubeconfig, context)))
    from agent.cli.gpus import SizingProposal, UseRequest, advise_gpus

    request = UseRequest(
        exporter or (), scrape or (), lasts_s, every, idle_after_s, region, address, kubeconfig, context
    )
    proposal = SizingProposal(fleet, pool, cluster, config, pull_request) if fleet is not None else None
    raise typer.Exit(advise_gpus(request, proposal=proposal))


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
