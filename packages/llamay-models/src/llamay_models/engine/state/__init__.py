"""The contents of a context: its tokens, their K/V and states, and the prefixes that contexts share."""
