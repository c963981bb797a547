"""Runs: a spec to objects to records on disk."""
