"""The terminal: progress, a model's text, tables, errors, and Ctrl-C."""
