"""What the paper published (Sivaprasad & Fleuret 2021), to stand beside ours."""

from collections.abc import Mapping
from typing import NamedTuple

from tapr.reports import names
from tapr.reports.results import Setting


class Published(NamedTuple):
    """A row of the paper's main table and the setting it was measured in."""

    title: str
    accuracy: Mapping[str, float]  # method's label -> share predicted right
    model: str
    model_key: str  # what a model's name has in it when it is this one
    batch_size: int
    images: int | None
    severity: int | None


_CIFAR10 = Published(
    title="CIFAR-10-C",
    accuracy={"source": 0.565, "tent": 0.814, "pest-randaugment": 0.809, "pest-augmix": 0.812},
    model="WRN-28-10",
    model_key="28-10",
    batch_size=200,
    images=10_000,
    severity=5,
)
_CIFAR100 = Published(
    title="CIFAR-100-C",
    accuracy={"source": 0.532, "tent": 0.645, "pest-randaugment": 0.654, "pest-augmix": 0.657},
    model="WRN-40-2 (trained with AugMix)",
    model_key="40-2",
    batch_size=200,
    images=10_000,
    severity=5,
)
_VISDA = Published(
    title="VisDA-C",
    accuracy={"source": 0.441, "tent": 0.609, "pest-randaugment": 0.671, "pest-augmix": 0.672},
    model="ResNet-50",
    model_key="resnet-50",
    batch_size=64,
    images=None,  # the paper does not say
    severity=None,
)
PAPER = {
    "cifar10": _CIFAR10,
    "cifar10c": _CIFAR10,
    "cifar100": _CIFAR100,
    "cifar100c": _CIFAR100,
    "visda": _VISDA,
}


def published(setting: Setting) -> Published | None:
    """The paper's row for this data, whatever else differs."""
    row = PAPER.get(str(setting.facts.get("data")))
    if row is None or (row.severity is not None and "clean" in setting.domains):
        return None
    return row


def differences(setting: Setting, row: Published) -> list[str]:
    """In words, everything known to differ between the paper's setting and this one."""
    facts = setting.facts
    found = []
    model = str(facts.get("model"))
    if row.model_key not in model.lower().replace("_", "-"):
        found.append(f"the paper's model is {row.model}, here it is {model}")
    if row.images is not None and facts.get("images") != row.images:
        found.append(
            f"it predicts {row.images:,} images of each, here {names.count(facts['images'])}"
        )
    if facts.get("batch_size") != row.batch_size:
        found.append(f"its batches hold {row.batch_size} images, here {facts.get('batch_size')}")
    if row.severity is not None:
        found += _corruptions(setting, row)
    if facts.get("protocol") != "each":
        found.append(f"it resets before each domain, here the stream is {facts.get('protocol')}")
    return found


def _corruptions(setting: Setting, row: Published) -> list[str]:
    found = []
    if setting.severity != row.severity:
        here = setting.severity or "several"
        found.append(f"its severity is {row.severity}, here it is {here}")
    have = {names.split(domain)[0] for domain in setting.domains}
    missing = len(set(names.STANDARD) - have)
    if missing:
        count = len(names.STANDARD)
        found.append(f"its mean is over {count} corruptions, {missing} of which are not here")
    if "generated" in str(setting.facts.get("origin")):
        found.append(f"it reads the published {row.title} files, here the corruptions are our own")
    return found
