"""Options that several verbs share, and what they become; the user's own file of defaults for them."""
