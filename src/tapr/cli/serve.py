"""`tapr serve`: a model behind HTTP, which adapts to each stream separately."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, among
from tapr.cli.shared import (
    Architecture,
    Chosen,
    Device,
    Labels,
    Mean,
    Model,
    Size,
    Std,
    options_of,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tapr.service.cluster import Cluster
    from tapr.service.engine import Engine
    from tapr.service.plan import Plan
    from tapr.service.server import Service
    from tapr.service.settings import Settings

BATCHES, STATES = "Batches and load", "States on disk"
LIMITS, SHOWN = "Limits and security", "What is shown"
CLUSTER = "More than one machine"


@app.command()
def serve(
    model: Model,
    method: str = typer.Option(
        "steady",
        help="The method: a name (`tapr methods` lists them), or your own `module:Class`.",
        autocompletion=among(METHODS),
    ),
    preset: str = typer.Option("paper", help="The method's preset: a published protocol."),
    option: Chosen = None,
    seed: int = typer.Option(0, help="The seed of the augmented views."),
    device: Device = "auto",
    architecture: Architecture = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    labels: Labels = None,
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    port: int = typer.Option(8000, min=1, max=65535, help="The port to listen on."),
    on: Annotated[
        str | None,
        typer.Option(
            help="Where the model runs: `ray` for replicas on Ray Serve.  [default: this process]",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="The address of a Ray cluster, e.g. `10.0.0.1:6379`; --state must then be a folder"
            " that all its machines share.  [default: start Ray on this machine]",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    replicas: int = typer.Option(
        2,
        min=1,
        help="The number of replicas for `--on ray`; each stream belongs to one of them.",
        rich_help_panel=CLUSTER,
    ),
    state: Annotated[
        Path,
        typer.Option(
            help="The folder in which the states of the streams are kept.", rich_help_panel=STATES
        ),
    ] = Path("tapr-streams"),
    save_every: float = typer.Option(
        10.0,
        min=0.0,
        help="The time between saves of a state, in seconds; a killed server loses at most that.",
        rich_help_panel=STATES,
    ),
    idle: float = typer.Option(
        300.0,
        min=1.0,
        help="How long a stream may be unused before it is moved to disk, in seconds.",
        rich_help_panel=STATES,
    ),
    in_memory: int = typer.Option(
        1000,
        min=1,
        help="The number of streams kept in memory; those used least recently go to disk.",
        rich_help_panel=STATES,
    ),
    snapshot_every: float = typer.Option(
        600.0,
        min=0.0,
        help="The time between snapshots of a stream, in seconds.",
        rich_help_panel=STATES,
    ),
    snapshots: int = typer.Option(
        5, min=1, help="The number of snapshots kept of each stream.", rich_help_panel=STATES
    ),
    log_predictions: bool = typer.Option(
        False,
        "--log-predictions",
        help="Log every prediction in predictions.sqlite before the answer is sent.",
        rich_help_panel=STATES,
    ),
    max_batch: int = typer.Option(
        64, min=1, help="The largest number of images in a batch.", rich_help_panel=BATCHES
    ),
    max_wait: float = typer.Option(
        20.0,
        min=0.0,
        help="How long an image waits for others of its stream, in milliseconds.",
        rich_help_panel=BATCHES,
    ),
    max_queue: int = typer.Option(
        1024,
        min=1,
        help="The number of images that may wait; further requests are answered with 429.",
        rich_help_panel=BATCHES,
    ),
    budget: float | None = typer.Option(
        None,
        min=1.0,
        help="How long a request may take, in milliseconds; if that is too short for adaptation,"
        " the unadapted model answers.  [default: no limit]",
        rich_help_panel=BATCHES,
    ),
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="A file of bearer tokens, with lines of `NAME SCOPES TOKEN`; required"
            " unless --host is a loopback address.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_streams: int = typer.Option(
        10_000, min=1, help="The largest number of streams.", rich_help_panel=LIMITS
    ),
    max_body: float = typer.Option(
        16.0, min=0.001, help="The largest body of a request, in MiB.", rich_help_panel=LIMITS
    ),
    max_images: int = typer.Option(
        256, min=1, help="The largest number of images in a request.", rich_help_panel=LIMITS
    ),
    max_pixels: int = typer.Option(
        1 << 25, min=1, help="The largest number of pixels of an image.", rich_help_panel=LIMITS
    ),
    rate: float = typer.Option(
        0.0,
        min=0.0,
        help="The requests per second allowed for a token or an address; 0 means no limit.",
        rich_help_panel=LIMITS,
    ),
    timeout: float = typer.Option(
        30.0,
        min=0.1,
        help="The seconds that a request may take until it is answered, its body included.",
        rich_help_panel=LIMITS,
    ),
    pictures: bool = typer.Option(
        True, help="Show small copies of recent images on the dashboard.", rich_help_panel=SHOWN
    ),
    alarm: str = typer.Option(
        "", help="A URL to which changes of a stream's health are posted.", rich_help_panel=SHOWN
    ),
) -> None:
    """Serve a model over HTTP; it adapts to each stream of images separately.

    A stream is a camera, a customer, a site: it has its own adapted state, which is made when the
    stream is first used. After a stop, the same command resumes all streams. The dashboard is at
    `/`, the API at `/docs`.

    Example: `tapr serve --model cifar10-small`
    """
    from tapr.service.settings import MIB, Settings

    settings = Settings(
        folder=state,
        max_batch=max_batch,
        max_wait=max_wait / 1000,
        max_queue=max(max_queue, max_images),
        budget=None if budget is None else budget / 1000,
        save_every=save_every,
        idle=idle,
        in_memory=in_memory,
        max_streams=max_streams,
        snapshot_every=snapshot_every,
        snapshots=snapshots,
        pictures=pictures,
        journal=log_predictions,
        max_body=int(max_body * MIB),
        max_images=max_images,
        max_pixels=max_pixels,
        rate=rate,
        timeout=timeout,
        alarm=alarm,
        tokens=tokens,
    )
    options = {"preset": preset, "seed": seed, "option": option or []}
    said = {
        "architecture": architecture,
        "settings": settings_of(size, mean, std),
        "labels": labels,
    }
    try:
        from tapr.service import server
        from tapr.service.front import log_lines
    except ImportError as error:
        from tapr.errors import InputError

        raise InputError(
            f"tapr serve needs the package {error.name}, which is not installed:"
            " pip install 'torch-tapr[serve]'"
        ) from error
    making = _engine(on, replicas, address)
    with server.bound(host, port, tokens) as line:
        service = _service(settings, model, method, options, said, device, making)
        log_lines()
        url = f"http://{host}:{port}/"
        typer.echo(
            f"serving {model} with {method}, {service.resumed} streams resumed: {url}", err=True
        )
        server.serve(service, line)


def _engine(
    on: str | None, replicas: int, address: str | None
) -> Callable[[Plan], Engine | Cluster]:
    """A function that makes the engine, in this process or on Ray."""
    from tapr.errors import InputError
    from tapr.service import on_ray
    from tapr.service.plan import Plan

    if on not in (None, "ray"):
        raise InputError(f"expected --on ray, or no --on, got --on {on}")
    if on is None and address is not None:
        raise InputError(f"expected --on ray with --address {address}")
    return (
        Plan.engine if on is None else partial(on_ray.cluster, replicas=replicas, address=address)
    )


def _service(
    settings: Settings,
    model: str,
    method: str,
    chosen: dict[str, Any],
    said: dict[str, Any],
    device: str,
    engine: Callable[[Plan], Engine | Cluster],
) -> Service:
    from tapr.runs import labels, preprocess
    from tapr.service import security, server

    security.Tokens(settings.tokens)  # their errors are reported before the model is loaded
    prepared = preprocess.prepared(model, said["architecture"], said["settings"])
    for note in prepared.notes:
        typer.echo(f"note: {note}", err=True)
    options = {"preset": chosen["preset"], "seed": chosen["seed"], **options_of(chosen["option"])}
    return server.Service(
        prepared.model,
        prepared.fit,
        settings,
        method=method,
        options=options,
        names=labels.class_names(said["labels"], prepared.config),
        device=device,
        title=model,
        engine=engine,
    )
