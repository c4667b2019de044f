"""The rows that each step computes: admission, the prefill budget, the batch, and the loop over the steps."""
