"""Contexts in files: the format, and what writes, reads, converts and compares them."""
