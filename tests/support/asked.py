"""A host that is asked, and operations that it is asked about."""


class Asked(list):
    """An `on_ask` that gives its answers one after the other, and the last one for good."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, denied):
        self.append(denied)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def write(path):
    with open(path, "w") as file:
        file.write("x")
