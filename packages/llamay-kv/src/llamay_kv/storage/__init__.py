"""Storage of bytes: file systems, object stores, scratch files, and encryption."""
