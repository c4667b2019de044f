"""Answers and conversations in a terminal."""
