"""Adapters: the code of agents of other packages runs in a session.

Each module imports the package that it is for, and nothing imports these modules.
"""
