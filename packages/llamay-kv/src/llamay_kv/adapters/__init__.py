"""The state engine inside other engines. Each module imports its host; this package imports none of them."""
