"""Embeddings, reranking and scores for retrieval, in the shapes of Text Embeddings Inference, Jina, Cohere and vLLM."""
