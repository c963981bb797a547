"""Runs: from a spec, to model, data and methods, to records on disk."""
