"""`tapr methods`: which methods there are, what they cost and need, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app
from tapr.cli.completing import among
from tapr.names import METHODS

if TYPE_CHECKING:
    from tapr.methods import About


@app.command()
def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The method whose options and presets are shown: a name, or `module:Class`.",
            autocompletion=among(METHODS),
        ),
    ] = None,
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List the methods with their papers, costs and needs, or show the options and presets of one.

    The cost is the number of forward and backward passes for each image, at most, with the method's
    own defaults. Methods that installed packages offer (entry points `tapr.methods`) are listed.

    Example: `tapr methods pest`
    """
    import json

    from tapr.methods import about, known

    found = [about(each) for each in ([name] if name else known())]
    if as_json:
        tables = [_table(each) for each in found]
        typer.echo(json.dumps(tables[0] if name else tables, indent=2, default=repr))
    elif name:
        typer.echo("\n".join(_page(found[0])))
    else:
        typer.echo("\n".join(_list(found)))


def _table(found: About) -> dict[str, Any]:
    needs = {need: why for need, why in found.needs._asdict().items() if why}
    passes = found.passes._asdict()
    return {**found._asdict(), "passes": passes, "needs": needs, "presets": dict(found.presets)}


def _list(found: list[About]) -> list[str]:
    lines = [f"{'method':14s} {'passes':>16s}  paper"]
    for each in found:
        forward, backward = each.passes
        passes = f"{forward} fwd, {backward} bwd"
        needs = ", ".join(
            need.replace("_", " ") for need, why in each.needs._asdict().items() if why
        )
        lines.append(
            f"{each.name:14s} {passes:>16s}  {each.paper or '-'}"
            + (f"; needs {needs}" if needs else "")
        )
    return [*lines, "", "tapr methods NAME shows the options and presets of one."]


def _page(found: About) -> list[str]:
    forward, backward = found.passes
    lines = [f"{found.name}: {found.summary}"]
    if found.paper:
        lines.append(f"paper: {found.paper}")
    lines.append(f"passes: {forward} forward, {backward} backward per image, at most")
    for need, why in found.needs._asdict().items():
        if why:
            lines.append(f"needs {need.replace('_', ' ')}, {why}")
    (first, defaults), *others = found.presets.items()
    lines += ["", f"options (preset {first}):"]
    lines += [f"  {name:22s} {value!r}" for name, value in defaults.items()]
    for preset, options in others:
        changed = {k: v for k, v in options.items() if v != defaults[k]}
        lines += ["", f"preset {preset} changes:"]
        lines += [f"  {name:22s} {value!r}" for name, value in changed.items()]
    return lines
