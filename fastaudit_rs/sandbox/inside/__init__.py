"""The part of a sandbox that runs in its own process."""
