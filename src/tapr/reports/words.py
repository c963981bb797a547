"""Sentences that say what a table shows and what it does not show."""

from collections.abc import Iterable, Sequence

from tapr import names
from tapr.records import RunRecord
from tapr.reports import paper, titles
from tapr.reports.metrics import ACCURACY
from tapr.reports.results import Setting, whole
from tapr.reports.tables import Row, Table

PROTOCOLS = {
    "each": "the model is reset before each",
    "continual": "one after another without a reset",
    "mixed": "all mixed in one stream",
    "gradual": "severities rise and fall without a reset",
    "alternating": "a batch of each in turn, without a reset",
}
_SHORT = {"each": "reset each"}
_STREAM = {
    "delta": "delta {}",
    "shift_at": "labels shift at {}",
    "burst": "each image {} times in a row",
    "rounds": "{} rounds",
    "clean": "between {} clean images",
    "blank": "{} images first",
    "only_class": "class {} alone",
}
_OPTIONS_OF_A_CONTROL = {"lr", "weight_decay", "momentum"}


def heading(setting: Setting) -> str:
    """The heading of a setting, in one line."""
    facts = setting.facts
    data = str(facts.get("data"))
    parts = [names.DATA.get(data, data)]
    if facts.get("split", "test") != "test":
        parts.append(f"split {facts.get('split')}")
    if setting.severity:
        parts.append(f"severity {setting.severity}")
    images = titles.count(facts.get("images"))
    parts.append(f"{images} images" + (" of each" if len(setting.domains) > 1 else ""))
    parts += [f"batches of {facts.get('batch_size')}", f"model {facts.get('model')}"]
    if facts.get("protocol") not in (None, "each"):
        parts.append(f"{facts['protocol']} stream")
    if facts.get("order"):
        parts.append(f"order {facts['order']}")
    parts += [text.format(facts[key]) for key, text in _STREAM.items() if key in facts]
    return ", ".join(parts)


def stream(setting: Setting) -> str:
    """How a setting's images follow each other, in a few words."""
    facts = setting.facts
    parts = [_SHORT.get(str(facts.get("protocol") or "each"), str(facts.get("protocol")))]
    parts += [str(facts["order"])] if facts.get("order") else []
    parts += [text.format(facts[key]) for key, text in _STREAM.items() if key in facts]
    return ", ".join(parts)


def about(setting: Setting) -> str:
    """Where the images come from and how they follow each other, as a sentence."""
    known = setting.facts.get("origin")
    origin = names.origin(**known) if known else "of unknown origin"
    protocol = str(setting.facts.get("protocol") or "each")
    if len(setting.domains) == 1:
        return f"Images: {origin}."
    domains = f"{len(setting.domains)} domains"
    return f"Images: {origin}; {domains}, {PROTOCOLS.get(protocol, protocol)}."


def headline(table: Table) -> list[str]:
    """The result in sentences: the best method, the unadapted model, the gradient's share."""
    if table.metric is not ACCURACY:
        return [_other_headline(table)]
    ranked = sorted((row for row in table.rows if row.mean), key=lambda row: -_mean(row))
    adapted = [row for row in ranked if row.system.adapts]
    source = next((row for row in ranked if not row.system.adapts), None)
    if not adapted:
        return [_says(source) + "."] if source else ["Nothing here is finished yet."]
    best = adapted[0]
    if source is None:
        return [_says(best) + "."]
    change = 100 * (_mean(best) - _mean(source))
    first = f"{_says(best)}, {source.look.spoken} {_percent(_mean(source))}"
    first += f": {abs(change):.1f} points {'more' if change >= 0 else 'fewer'}."
    return [first, *_beaten(best, adapted[1:]), *_gradient_part(adapted)]


def _other_headline(table: Table) -> str:
    """The headline for a metric other than accuracy: the best methods, and the unadapted model."""
    metric, best = table.metric, table.best(None)
    if best is None:
        return "Nothing here is finished yet."
    leaders = [row.look.spoken for row in table.rows if row.mean and row.mean.value == best]
    unit = {"%": "\u00a0%", "": ""}.get(metric.unit, f"\u00a0{metric.unit}")
    text = f"{_first(titles.listed(leaders))}: {metric.title} {metric.text(best)}{unit}"
    source = table.baseline
    if source and source.mean and source.look.spoken not in leaders:
        text += f", {source.look.spoken} {metric.text(source.mean.value)}{unit}"
    return text + f". {'Less' if metric.lower else 'More'} is better."


def _mean(row: Row) -> float:
    assert row.mean
    return row.mean.value


def _percent(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def _says(row: Row) -> str:
    spoken = row.look.spoken[:1].upper() + row.look.spoken[1:]
    return f"{spoken} predicts {_percent(_mean(row))} of the images right"


def _beaten(best: Row, others: Sequence[Row]) -> list[str]:
    """The second-best methods, and whether the best one is clearly ahead of them."""
    if not others or best.mean is None:
        return []
    within = [row.look.spoken for row in others if _mean(row) >= best.mean.interval.low]
    if within:
        verb = "lies" if len(within) == 1 else "lie"
        return [
            f"{_first(titles.listed(within))} {verb} within its 95 % interval; tapr compare says"
            " whether they differ."
        ]
    return [f"Next comes {others[0].look.spoken} with {_percent(_mean(others[0]))}."]


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(line: str) -> str:
    """A line with a capital letter and a full stop."""
    return _first(line) + "."


def _gradient_part(rows: Sequence[Row]) -> list[str]:
    """How much of a method's gain is due to its gradient: the gain over its control."""
    for control in rows:
        if control.system.recipe.get("lr") != 0:
            continue
        for row in rows:
            if row is not control and _without_rate(row) == _without_rate(control):
                part = 100 * (_mean(row) - _mean(control))
                return [
                    f"The same forward passes with the gradient off reach"
                    f" {_percent(_mean(control))}: the gradient of {row.look.spoken} itself"
                    f" {'adds' if part >= 0 else 'costs'} {abs(part):.1f} points; the rest comes"
                    " from the statistics."
                ]
    return []


def _without_rate(row: Row) -> dict[str, object]:
    recipe = row.system.recipe
    return {key: value for key, value in recipe.items() if key not in _OPTIONS_OF_A_CONTROL}


def notes(table: Table) -> list[str]:
    """What a reader must know before quoting a number."""
    found = [*_policies(table), *_paper(table)]
    found += [sentence(table.published)] * bool(table.published)
    found += [*_mean_note(table), *_intervals(table)]
    return [*found, *_unfinished(table), *_environments(table.setting.runs)]


def _policies(table: Table) -> list[str]:
    users: dict[str, list[str]] = {}
    for row in table.rows:
        if row.system.adapts:
            users.setdefault(row.system.statistics, []).append(row.look.title)
    if len(users) < 2:
        return []
    listed = "; ".join(f"{policy}: {', '.join(titles)}" for policy, titles in users.items())
    return [
        f"These methods predict with different batch-norm statistics ({listed}). Part of the"
        " difference between two methods may come from the statistics, which on a short stream"
        " matter more than the gradient."
    ]


def _paper(table: Table) -> list[str]:
    row = paper.published(table.setting)
    if row is None or not table.has_paper:
        return []
    different = paper.differences(table.setting, row)
    if not different:
        return ["The paper's column was measured in this same setting."]
    return [
        f"The paper's column is its own published mean on {row.title}, in another setting:"
        f" {'; '.join(different)}. Compare the order of the methods, not the numbers."
    ]


def _mean_note(table: Table) -> list[str]:
    corruptions = {domain.corruption for domain in table.averaged}
    if len(table.domains) < 2 or corruptions == {None}:
        return []
    if corruptions >= set(names.STANDARD):
        extra = len(table.domains) - len(table.averaged)
        return [f"The mean is over the standard 15, without the {extra} extra ones."] * (extra > 0)
    if corruptions <= set(names.STANDARD):
        return [f"The mean is over these {len(table.averaged)}, not over the standard 15."]
    return []


def _intervals(table: Table) -> list[str]:
    kinds = {row.mean.over: row.mean for row in table.rows if row.mean}
    found = []
    if "seeds" in kinds:
        found.append(
            f"Intervals are 95 % of Student's t over {kinds['seeds'].seeds} seeds: how much another"
            " seed would change the number, on these same images."
        )
    if "images" in kinds:
        which = "Where seeds change nothing, intervals" if "seeds" in kinds else "Intervals"
        how = "bootstrap" if table.metric.shares else "jackknife"
        found.append(
            f"{which} are a 95 % {how} over the images: how much other images would change the"
            " number."
        )
    return found


def _unfinished(table: Table) -> list[str]:
    found = []
    for row in table.rows:
        runs = row.system.runs
        open_ = [run for run in runs if not whole(run)]
        missing = [d for d, cell in zip(table.domains, row.cells, strict=True) if cell is None]
        if open_ or missing:
            parts = [f"{len(open_)} of its {len(runs)} runs are cut short (†)"] * bool(open_)
            parts += [f"nothing yet on {titles.listed([titles.short(d) for d in missing])}"] * bool(
                missing
            )
            found.append(f"{_first(row.look.title)} is not finished: {'; '.join(parts)}.")
    return found


def _environments(runs: Iterable[RunRecord]) -> list[str]:
    runs = list(runs)
    found = []
    for key, what in (("tapr", "versions of tapr"), ("torch", "versions of torch")):
        values = sorted({str(run.environment[key]) for run in runs if key in run.environment})
        if len(values) > 1:
            found.append(f"These runs come from different {what}: {titles.listed(values)}.")
    keys = ("machine", "threads")
    places = {tuple(str(run.environment.get(key)) for key in keys) for run in runs}
    if len(places) > 1:
        found.append("The runs come from several machines or thread counts: do not compare speeds.")
    return found
