"""The models that a server offers: found by name, loaded on demand, with the LoRA scales that a request wants."""
