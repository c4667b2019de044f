"""Calls of tools: the formats of the usual models as data, the grammar of calls, and arguments between tags."""
