"""`Progress`: how far something long has come."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`, called in the thread that waits. Raising from it abandons the work."""
