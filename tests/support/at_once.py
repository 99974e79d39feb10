"""Functions that tests run in threads of their own, side by side."""

import threading


def run(*functions):
    """Run them to the end."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
