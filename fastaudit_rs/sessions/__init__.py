"""Sessions: steps of code that share names, here or in a sandbox."""
