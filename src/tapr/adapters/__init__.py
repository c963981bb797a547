"""Adapters: called like the model, they adapt while they predict."""

from tapr.adapters.base import Adapter
from tapr.adapters.cost import Cost, Passes
from tapr.adapters.gradient import GradientAdapter
from tapr.adapters.norm import Norm
from tapr.adapters.schedule import Schedule
from tapr.adapters.source import Source

__all__ = ["Adapter", "Cost", "GradientAdapter", "Norm", "Passes", "Schedule", "Source"]
