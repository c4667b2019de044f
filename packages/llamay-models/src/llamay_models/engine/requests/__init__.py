"""The two sides of a caller: the request, and the generation with the channel from the engine's thread."""
