"""GGUF models, tokenizers, chat templates, architectures and the engine of llamay."""
