"""Objects that answer differently each time they are asked."""


class Paths:
    """A path-like object that gives one path after the other."""

    def __init__(self, *paths):
        self.paths = list(paths)

    def __fspath__(self):
        return self.paths.pop(0)


class Numbers:
    """A number that is no `int`, and says one value after the other."""

    def __init__(self, *values):
        self.values = list(values)

    def __index__(self):
        return self.values.pop(0)
