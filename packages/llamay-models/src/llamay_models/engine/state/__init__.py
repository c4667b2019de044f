"""What a context is made of: its tokens, their K/V and states, and the prefixes that contexts share."""
