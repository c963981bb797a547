"""Until all call `tapr.methods` themselves."""

from tapr.methods.own import is_own, model

__all__ = ["is_own", "model"]
