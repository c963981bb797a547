"""The numbers that the paper published (Sivaprasad & Fleuret 2021), to compare ours with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tapr.names import STANDARD
from tapr.reports import titles
from tapr.reports.results import Setting, System


class Number(NamedTuple):
    """The published accuracy of a method whose options differ from its defaults in these."""

    method: str
    options: Mapping[str, Any]
    accuracy: float


class Published(NamedTuple):
    """A row of the paper's main table and the setting it was measured in."""

    title: str
    numbers: tuple[Number, ...]
    model: str
    model_key: str  # a part of the name by which this model is recognised
    batch_size: int
    images: int | None
    severity: int | None

    def of(self, system: System) -> float | None:
        """The published accuracy of this method with these options; None if there is none."""
        mine = (system.method, system.options)
        found = (each.accuracy for each in self.numbers if (each.method, each.options) == mine)
        return None if system.differing else next(found, None)


def _numbers(source: float, tent: float, randaugment: float, augmix: float) -> tuple[Number, ...]:
    return (
        Number("source", {}, source),
        Number("tent", {}, tent),
        Number("pest", {"augmentation": "randaugment"}, randaugment),
        Number("pest", {}, augmix),
    )


_CIFAR10 = Published(
    title="CIFAR-10-C",
    numbers=_numbers(source=0.565, tent=0.814, randaugment=0.809, augmix=0.812),
    model="WRN-28-10",
    model_key="28-10",
    batch_size=200,
    images=10_000,
    severity=5,
)
_CIFAR100 = Published(
    title="CIFAR-100-C",
    numbers=_numbers(source=0.532, tent=0.645, randaugment=0.654, augmix=0.657),
    model="WRN-40-2 (trained with AugMix)",
    model_key="40-2",
    batch_size=200,
    images=10_000,
    severity=5,
)
_VISDA = Published(
    title="VisDA-C",
    numbers=_numbers(source=0.441, tent=0.609, randaugment=0.671, augmix=0.672),
    model="ResNet-50",
    model_key="resnet-50",
    batch_size=64,
    images=None,  # the paper does not say
    severity=None,
)
# Architectures of RobustBench whose names do not say which network they are.
_ROBUSTBENCH = {
    "robustbench:Standard": "wrn-28-10",
    "robustbench:Hendrycks2020AugMix_WRN": "wrn-40-2",
}
PAPER = {
    "cifar10": _CIFAR10,
    "cifar10c": _CIFAR10,
    "cifar100": _CIFAR100,
    "cifar100c": _CIFAR100,
    "visda": _VISDA,
}


def is_model(key: str, facts: Mapping[str, Any]) -> bool:
    """Whether the model's name, or its architecture, says that it is the published one.

    >>> is_model("28-10", {"model": "Standard.pt", "architecture": "robustbench:Standard"})
    True
    """
    architecture = str(facts.get("architecture"))
    told = (str(facts.get("model")), architecture, _ROBUSTBENCH.get(architecture, ""))
    return any(key in text.lower().replace("_", "-") for text in told)


def published(setting: Setting) -> Published | None:
    """The paper's row for this data, whatever else differs."""
    row = PAPER.get(str(setting.facts.get("data")))
    clean = not setting.facts.get("severities")
    if row is None or (row.severity is not None and clean):
        return None
    return row


def differences(setting: Setting, row: Published) -> list[str]:
    """In words, everything known to differ between the paper's setting and this one."""
    facts = setting.facts
    found = []
    model = str(facts.get("model"))
    if not is_model(row.model_key, facts):
        found.append(f"the paper's model is {row.model}, here it is {model}")
    if row.images is not None and facts.get("images") != row.images:
        found.append(
            f"it predicts {row.images:,} images of each, here {titles.count(facts.get('images'))}"
        )
    if facts.get("batch_size") != row.batch_size:
        found.append(f"its batches hold {row.batch_size} images, here {facts.get('batch_size')}")
    if row.severity is not None:
        found += _corruptions(setting, row)
    if not setting.single:
        found.append(f"it resets before each domain, here the stream is {facts.get('protocol')}")
    return found


def _corruptions(setting: Setting, row: Published) -> list[str]:
    found = []
    if setting.severity != row.severity:
        here = setting.severity or "several"
        found.append(f"its severity is {row.severity}, here it is {here}")
    have = {domain.corruption for domain in setting.domains}
    missing = len(set(STANDARD) - have)
    if missing:
        count = len(STANDARD)
        found.append(f"its mean is over {count} corruptions, {missing} of which are not here")
    if (setting.facts.get("origin") or {}).get("made") == "generated":
        found.append(f"it reads the published {row.title} files, here the corruptions are our own")
    return found
