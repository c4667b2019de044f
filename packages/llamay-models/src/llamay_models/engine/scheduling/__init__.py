"""What is computed in which step: admission, the prefill budget, the batch, and the loop over the steps."""
