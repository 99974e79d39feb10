"""The real runtime of containers, where there is one: `make test-docker` tells it."""

import os

#: The image of its containers, made of the package as it is installed; `None` without a runtime.
IMAGE = os.environ.get("FASTAUDIT_RS_IMAGE")


def left(sandboxes):
    """The containers of these sandboxes that are there, whatever their state."""
    import docker

    client = docker.from_env()
    try:
        return [
            each
            for sandbox in sandboxes
            for each in client.api.containers(
                all=True, filters={"label": f"fastaudit-rs={sandbox.directory}"}
            )
        ]
    finally:
        client.close()
