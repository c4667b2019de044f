"""Rerankers and scores, in the shapes of Jina, Cohere, vLLM and Text Embeddings Inference."""
