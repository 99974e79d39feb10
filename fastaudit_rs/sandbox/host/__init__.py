"""The host's side of a sandbox."""
