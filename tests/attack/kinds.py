"""Methods of every kind: no step, statistics, one step, many, a teacher with a memory, features."""

METHODS = ("source", "norm", "tent", "pest", "rotta", "t3a")
