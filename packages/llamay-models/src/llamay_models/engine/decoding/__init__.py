"""The way of one sequence to its text: constraint, sampler, speculation, detokenizer and stop strings."""
