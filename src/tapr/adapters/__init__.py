"""Adapters, which are called like the model and adapt while they predict, and their parts."""

from tapr.adapters.adapter import Adapter
from tapr.adapters.corrections import (
    PRIORS,
    Correction,
    Laplacian,
    Prior,
    ProbabilityPrior,
    Prototypes,
    Taught,
)
from tapr.adapters.cost import Cost, Passes
from tapr.adapters.evolution import Evolution
from tapr.adapters.guard import NotFinite
from tapr.adapters.keepers import Ensemble, Filter, Keeper, Recover, Restore
from tapr.adapters.learner import Learner
from tapr.adapters.loop import Loop
from tapr.adapters.memory import Balanced, Latest, Lesson, Memory, Mixed, Recent, Shelved, Timely
from tapr.adapters.needs import Needs
from tapr.adapters.schedule import Schedule
from tapr.adapters.sharpness import SAM
from tapr.adapters.teacher import Teacher
from tapr.adapters.votes import Votes

__all__ = [
    "PRIORS",
    "SAM",
    "Adapter",
    "Balanced",
    "Correction",
    "Cost",
    "Ensemble",
    "Evolution",
    "Filter",
    "Keeper",
    "Laplacian",
    "Latest",
    "Learner",
    "Lesson",
    "Loop",
    "Memory",
    "Mixed",
    "Needs",
    "NotFinite",
    "Passes",
    "Prior",
    "ProbabilityPrior",
    "Prototypes",
    "Recent",
    "Recover",
    "Restore",
    "Schedule",
    "Shelved",
    "Taught",
    "Teacher",
    "Timely",
    "Votes",
]
