"""The resolution of MODEL: a name in a store, a source to pull from, or a path; and models made of other models."""

from .resolution import Resolved, fetch, resolve

__all__ = ["Resolved", "fetch", "resolve"]
