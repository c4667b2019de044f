"""Contexts as values: the handle that callers hold, what it asks of its model, and its snapshots."""
