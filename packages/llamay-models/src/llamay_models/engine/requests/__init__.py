"""What a caller hands in and gets back: a request, the channel from the engine's thread, and the generation."""
