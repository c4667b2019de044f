"""llamay's own routes: contexts as values over HTTP."""
