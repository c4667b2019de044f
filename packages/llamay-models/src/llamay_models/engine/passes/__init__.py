"""Forward passes without generation: embeddings and scores of texts, and the prefill of contexts.

The text passes of all callers share the steps of a plan. These steps run between the steps of the generations, and
have no more rows than a step with prompt rows may have, so no generation waits longer for them.
"""
