"""The one version of every package in this repository."""

__version__ = "0.1.0"
