"""Metrics, pictures and the report of a run."""
