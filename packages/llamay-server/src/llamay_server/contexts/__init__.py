"""The contexts that clients hold by name: their owners, their bounds and their markings."""
