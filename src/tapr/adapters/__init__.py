"""Adapters: called like the model, they adapt while they predict; and the parts they have."""

from tapr.adapters.adapter import Adapter, Needs
from tapr.adapters.corrections import Correction, Laplacian, Prior, Prototypes, Taught
from tapr.adapters.cost import Cost, Passes
from tapr.adapters.guard import NotFinite
from tapr.adapters.keepers import Ensemble, Keeper, Recover, Restore
from tapr.adapters.learner import Learner
from tapr.adapters.loop import Loop
from tapr.adapters.memory import Balanced, Latest, Lesson, Memory, Recent, Shelved, Timely
from tapr.adapters.schedule import Schedule
from tapr.adapters.teacher import Teacher
from tapr.adapters.votes import Votes

__all__ = [
    "Adapter",
    "Balanced",
    "Correction",
    "Cost",
    "Ensemble",
    "Keeper",
    "Laplacian",
    "Latest",
    "Learner",
    "Lesson",
    "Loop",
    "Memory",
    "Needs",
    "NotFinite",
    "Passes",
    "Prior",
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
