"""The places where people work: the command, notebooks and pytest."""
