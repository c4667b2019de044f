"""Ollama's dialect: generation, and the routes about models."""
