"""The engine: the interface that the server needs, and its implementation over llamay_models."""
