"""Where people work: the command, notebooks and pytest."""
