"""How one sequence becomes text: constraint, sampler, speculation, detokenizer and stop strings."""
