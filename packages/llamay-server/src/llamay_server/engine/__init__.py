"""What computes: the interface that the server needs from an engine, and llamay_models behind it."""
