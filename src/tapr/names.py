"""The names that more than one layer needs; importing them costs nothing, torch least of all."""

import re
from collections.abc import Mapping
from typing import Any

# Method -> its class. Every other place takes a method's name from here, or from the class.
METHODS: Mapping[str, str] = {
    "steady": "tapr.methods.steady:Steady",
    "source": "tapr.methods.source:Source",
    "norm": "tapr.methods.norm:Norm",
    "tent": "tapr.methods.tent:Tent",
    "pest": "tapr.methods.pest:PEST",
    "eta": "tapr.methods.eta:ETA",
    "eata": "tapr.methods.eata:EATA",
    "sar": "tapr.methods.sar:SAR",
    "roid": "tapr.methods.roid:ROID",
    "cmf": "tapr.methods.cmf:CMF",
    "deyo": "tapr.methods.deyo:DeYO",
    "rpl": "tapr.methods.rpl:RPL",
    "shot": "tapr.methods.shot:SHOT",
    "rdumb": "tapr.methods.rdumb:RDumb",
    "ttt": "tapr.methods.ttt:TTT",
    "lame": "tapr.methods.lame:LAME",
    "t3a": "tapr.methods.t3a:T3A",
    "memo": "tapr.methods.memo:MEMO",
    "cotta": "tapr.methods.cotta:CoTTA",
    "rotta": "tapr.methods.rotta:RoTTA",
    "rmt": "tapr.methods.rmt:RMT",
    "note": "tapr.methods.note:NOTE",
    "adacontrast": "tapr.methods.adacontrast:AdaContrast",
    "foa": "tapr.methods.foa:FOA",
}

AUGMENTATIONS = (
    *("augmix", "crop", "identity", "katana"),
    *("moco", "randaugment", "resized-crop"),
)
PROTOCOLS = ("each", "continual", "mixed", "gradual", "alternating")
ORDERS = ("listed", "shuffled", "sorted", "dirichlet", "correlated", "shift")
CLEAN = "clean"  # among corruptions: the images as they are
BLANKS = ("black", "constant", "noise")  # kinds of images that show nothing

METRICS = (
    *("accuracy", "error", "top5", "calibration", "calibration-mass", "nll", "brier", "auroc"),
    *("worst-domain", "worst-1000", "settling", "time", "memory", "forward", "backward"),
)

# Data set -> its title in reports.
DATA: Mapping[str, str] = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10c": "CIFAR-10-C",
    "cifar100c": "CIFAR-100-C",
    "visda": "VisDA-C",
    "digits": "scikit-learn's digits",
    "mnist": "MNIST",
    "usps": "USPS",
    "imagenet": "ImageNet",
    "imagenet-c": "ImageNet-C",
    "imagenet-r": "ImageNet-R",
    "imagenet-a": "ImageNet-A",
    "imagenet-v2": "ImageNetV2",
    "imagenet-sketch": "ImageNet-Sketch",
    "pacs": "PACS",
    "office-home": "Office-Home",
    "domainnet": "DomainNet",
}

# Corruption -> the heading of a narrow column, in Hendrycks & Dietterich's order. The paper's mean
# is over the standard fifteen.
STANDARD: Mapping[str, str] = {
    "gaussian_noise": "gauss.",
    "shot_noise": "shot",
    "impulse_noise": "impulse",
    "defocus_blur": "defocus",
    "glass_blur": "glass",
    "motion_blur": "motion",
    "zoom_blur": "zoom",
    "snow": "snow",
    "frost": "frost",
    "fog": "fog",
    "brightness": "bright.",
    "contrast": "contrast",
    "elastic_transform": "elastic",
    "pixelate": "pixelate",
    "jpeg_compression": "jpeg",
}
EXTRA: Mapping[str, str] = {
    "speckle_noise": "speckle",
    "gaussian_blur": "g. blur",
    "spatter": "spatter",
    "saturate": "saturate",
}
CORRUPTIONS: Mapping[str, str] = {**STANDARD, **EXTRA}

# How a domain's images came to be -> the words behind the data set's name.
MADE: Mapping[str, str] = {
    "clean": "",
    "generated": ", generated",
    "published": ", read from files",
}


def origin(dataset: str = "unknown data", made: str = "clean", seed: int | None = None) -> str:
    """Where images come from, in words.

    >>> origin("cifar10", "generated", 0), origin("cifar10c", "published"), origin("digits")
    ('cifar10, generated with seed 0', 'cifar10c, read from files', 'digits')
    """
    return dataset + MADE.get(made, f", {made}") + ("" if seed is None else f" with seed {seed}")


def statistics(recipe: Mapping[str, Any]) -> str:
    """Whose batch-norm statistics a method with these options predicts with, and what feeds them.

    >>> statistics({"statistics": "running", "views": 2, "feed": "views"})
    'running, fed by views'
    """
    use = str(recipe.get("statistics", "source"))
    fed = use in ("running", "cumulative") and recipe.get("views")
    return f"{use}, fed by {recipe.get('feed', 'views')}" if fed else use


def pieces(text: str, mark: str) -> list[str]:
    """The parts of a text between marks that stand outside of brackets and quotes, unpadded.

    >>> pieces('tent, pest:augmentation_options={"n": 1, "m": 3}', ",")
    ['tent', 'pest:augmentation_options={"n": 1, "m": 3}']
    """
    found, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == '"'
        depth += 0 if quoted else (character in "{[") - (character in "}]")
        if character == mark and depth <= 0 and not quoted:
            found.append("")
        else:
            found[-1] += character
    return [part.strip() for part in found if part.strip()]


def slug(label: str) -> str:
    """A label as a part of a file name: nothing in it means anything to a shell or a file system.

    >>> slug("mine:ETA"), slug("a/b [*]")
    ('mine.ETA', 'a-b-')
    """
    return re.sub(r"[^\w.=+-]+", "-", label.replace(":", "."), flags=re.ASCII)[:80]
