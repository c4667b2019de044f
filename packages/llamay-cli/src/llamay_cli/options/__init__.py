"""Options that several verbs share, and their values for the engine; the user's own file of defaults for them."""
