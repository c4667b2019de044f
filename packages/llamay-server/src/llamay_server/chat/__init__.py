"""Conversations in no dialect: what all chat dialects are read into, and the events that all are written from."""
