"""The web chat."""
