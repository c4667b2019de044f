"""OpenAI's dialect: chat completions, completions, responses, decisions, embeddings and models."""
