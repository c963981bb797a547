"""Classifiers: networks, trained weights by name, and what adaptation does to a model."""

from tapr.models.architectures import ARCHITECTURES, build
from tapr.models.foreign import FOREIGN, PACKAGED
from tapr.models.zoo import SHIPPED, card, load

__all__ = ["ARCHITECTURES", "FOREIGN", "PACKAGED", "SHIPPED", "build", "card", "load"]
