"""The real runtime of containers, where there is one: `make test-docker` tells it."""

import os

#: The image of its containers, made of the package as it is installed; `None` without a runtime.
IMAGE = os.environ.get("FASTAUDIT_RS_IMAGE")


def left():
    """The sandboxes' containers that are there, whatever their state."""
    import docker

    client = docker.from_env()
    try:
        return client.api.containers(all=True, filters={"label": "fastaudit-rs=sandbox"})
    finally:
        client.close()
