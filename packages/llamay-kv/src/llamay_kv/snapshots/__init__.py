"""Contexts in files: the format, and functions that write, read, convert and compare them."""
