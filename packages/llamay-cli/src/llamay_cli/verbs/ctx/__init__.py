"""`llamay ctx`: contexts as files."""
