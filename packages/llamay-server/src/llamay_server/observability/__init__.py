"""Metrics, logs and traces of a running server, for its operator."""
