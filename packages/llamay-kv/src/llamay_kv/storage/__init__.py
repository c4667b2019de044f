"""Where bytes go: file systems, object stores, scratch files, and the encryption of what is stored."""
