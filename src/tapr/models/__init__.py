"""Classifiers: networks, trained weights by name, and what adaptation does to a model."""

from tapr.models.architectures import ARCHITECTURES, build
from tapr.models.zoo import SHIPPED, TIMM, card, load

__all__ = ["ARCHITECTURES", "SHIPPED", "TIMM", "build", "card", "load"]
