"""Contexts as values: the handle that callers hold, the protocols by which it knows its model, and snapshots."""
