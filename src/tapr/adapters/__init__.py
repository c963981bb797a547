"""Adapters: called like the model, they adapt while they predict."""

from tapr.adapters.base import Adapter, Passes
from tapr.adapters.gradient import GradientAdapter, Schedule
from tapr.adapters.norm import Norm
from tapr.adapters.source import Source

__all__ = ["Adapter", "GradientAdapter", "Norm", "Passes", "Schedule", "Source"]
