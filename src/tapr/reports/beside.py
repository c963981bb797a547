"""Published numbers beside measured ones, shown only where the setting is the same."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tapr import names
from tapr.reports import paper, titles
from tapr.reports.published import Published

Options = Mapping[str, Any] | None  # those that differ from the method's defaults; None: not known

_PAPER = "Sivaprasad & Fleuret 2021"
_CORRUPTED = {"cifar10": "cifar10c", "cifar100": "cifar100c"}  # clean images, corrupted by us
_PARAMETERS = (  # of streams; no table was published for a stream with one of them
    *("delta", "shift_at", "burst", "rounds", "clean"),
    *("blank", "only_class"),
)
_SAME = ("released", "benchmark")  # presets of a code; the method itself is the same


class Beside(NamedTuple):
    """The published number for each system and its source, or why none is shown."""

    numbers: list[float | None]  # shares predicted right, the mean over the corruptions
    sources: list[str]  # where each number was published; "" without a number
    line: str  # the note beside the numbers; "" when nothing was published on such data

    @property
    def any(self) -> bool:
        """Whether there is any number."""
        return any(self.sources)


def beside(
    facts: Mapping[str, Any],
    corruptions: Collection[str | None],
    systems: Sequence[tuple[str, Options]],
    tables: Sequence[Published],
) -> Beside:
    """Published numbers for systems (methods with options) measured in a setting.

    Data, model, protocol, order, severity and corruptions must be those of a table. The model is
    known by its name or its architecture alone. Other differences are named in `line`.
    """
    data = str(facts.get("data"))
    near = [table for table in tables if table.data == _CORRUPTED.get(data, data)]
    same = [table for table in near if not _differences(table, facts, corruptions)]
    found = [_find(same, *system) for system in systems]
    numbers = [table.accuracy(name) if table else None for table, name in found]
    sources = [table.source if table else "" for table, _ in found]
    line = _sources(systems, found, facts) if any(sources) else _why(near, facts, corruptions)
    missing = [system for system, source in zip(systems, sources, strict=True) if not source]
    return Beside(numbers, sources, line + _elsewhere(missing, near, facts) * bool(same))


def own() -> tuple[Published, ...]:
    """The numbers of the paper that tapr follows, as a table like the others."""
    return tuple(
        Published(
            *(data, row.model, row.model_key, "each", None, row.images, row.batch_size, _PAPER),
            {_named(n.method, n.options)[0]: 100 * (1 - n.accuracy) for n in row.numbers},
            row.severity,
        )
        for data, row in paper.PAPER.items()
        if data not in _CORRUPTED
    )


def _named(method: str, options: Options) -> list[str]:
    """What a table may call a method with these options.

    >>> _named("shot", {"preset": "im"}), _named("sar", {"preset": "benchmark"})
    (['shot-im'], ['sar-benchmark', 'sar'])
    """
    if options is None:
        return []
    chosen = [(key, value) for key, value in options.items() if key != "source_images"]
    if not chosen:
        return [method]
    (key, value), *more = chosen
    if more or not isinstance(value, str):
        return []
    return [f"{method}-{value}"] + [method] * (key == "preset" and value in _SAME)


def _find(
    tables: Sequence[Published], method: str, options: Options
) -> tuple[Published | None, str]:
    """The first table that has the method, and what it calls it."""
    found = ((t, name) for name in _named(method, options) for t in tables if name in t.errors)
    return next(found, (None, ""))


def _differences(
    table: Published, facts: Mapping[str, Any], corruptions: Collection[str | None]
) -> list[str]:
    """In words, how the setting of a table differs from this one."""
    found = []
    if not paper.is_model(table.model_key, facts):
        found.append(f"for {table.model}, here the model is {facts.get('model')}")
    protocol, order = facts.get("protocol") or "each", facts.get("order")
    if table.protocol != protocol:
        found.append(f"for the protocol {table.protocol}, here it is {protocol}")
    if table.order != order and (table.order, order) != (None, "listed"):
        found.append(f"for the order {table.order or 'listed'}, here it is {order or 'listed'}")
    found += [f"without {key}, here it is {facts[key]}" for key in _PARAMETERS if key in facts]
    if table.severity is None:
        return found + ["for images as they are, here corrupted"] * any(corruptions)
    if list(facts.get("severities") or ()) != [table.severity]:
        found.append(f"for severity {table.severity}, here another")
    if set(corruptions) & set(names.STANDARD) != set(names.STANDARD):
        found.append(f"means of {len(names.STANDARD)} corruptions, and here some are missing")
    return found


def _why(
    tables: Sequence[Published], facts: Mapping[str, Any], corruptions: Collection[str | None]
) -> str:
    """Why no number is shown, explained with the table that comes nearest."""
    reasons = [_differences(table, facts, corruptions) for table in tables]
    if not reasons:
        return ""
    nearest = min(reasons, key=len)
    if not nearest:
        return "no published numbers shown: there are none for these methods in this setting"
    return f"no published numbers shown: the nearest are {'; '.join(nearest)}"


def _elsewhere(
    systems: Sequence[tuple[str, Options]], tables: Sequence[Published], facts: Mapping[str, Any]
) -> str:
    """Which other protocols have published numbers for the remaining methods, with this model."""
    mine = [table for table in tables if paper.is_model(table.model_key, facts)]
    groups: dict[str, list[str]] = {}
    for method, options in systems:
        table, _ = _find(mine, method, options)
        if table:
            groups.setdefault(table.protocol, []).append(method)
    return "".join(
        f"; those of {titles.listed(methods)} are for the protocol {protocol}"
        for protocol, methods in groups.items()
    )


def _sources(
    systems: Sequence[tuple[str, Options]],
    found: Sequence[tuple[Published | None, str]],
    facts: Mapping[str, Any],
) -> str:
    """Where the numbers come from, and what still differs between the settings."""
    groups: dict[str, list[str]] = {}
    for (method, _), (table, _name) in zip(systems, found, strict=True):
        if table:
            groups.setdefault(table.source, []).append(method)
    several = len(groups) > 1
    listed = [
        f"{titles.listed(list(dict.fromkeys(methods)))} by {source}" if several else source
        for source, methods in groups.items()
    ]
    first = next(table for table, _ in found if table)
    line = f"published: {'; '.join(listed)}; for {first.model}"
    here, there = facts.get("images"), first.images
    if there is not None and here != there:
        line += f", {there:,} images of each (here {titles.count(here)})"
    if facts.get("batch_size") != first.batch_size:
        line += f", batches of {first.batch_size} (here {facts.get('batch_size')})"
    if (facts.get("origin") or {}).get("made") == "generated":
        line += ", the published files (here corrupted by tapr)"
    return line
