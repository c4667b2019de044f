"""Forward passes without generation, for embeddings and scores."""
