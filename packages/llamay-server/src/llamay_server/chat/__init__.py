"""Conversations in no dialect: all chat dialects are read into one request and written from one stream of events."""
