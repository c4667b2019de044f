"""What the command shows a person: progress, a model's text on a terminal, tables, errors, and Ctrl-C."""
