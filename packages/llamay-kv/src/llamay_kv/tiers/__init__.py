"""Computed prefixes and opaque blocks in sealed chunks that outlive the process."""
