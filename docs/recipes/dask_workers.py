"""Functions under a guard on the workers of Dask."""

import os
import tempfile

from distributed import Client

from fastaudit_rs import AuditDenied, Policy, guarded


@guarded
def make(path: str) -> list[str]:
    """Make a directory, on a worker."""
    os.mkdir(path)
    return os.listdir(os.path.dirname(path))


def main() -> None:
    """Let workers write to one directory."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Client(n_workers=2, dashboard_address=":0") as client,
    ):
        client.register_plugin(Policy(write=[directory]).worker_plugin())
        print(client.submit(make, f"{directory}/notes").result())
        try:
            client.submit(make, "/srv/notes").result()
        except AuditDenied as denied:
            print(denied.event, denied.path, "denied by", denied.rule)


if __name__ == "__main__":
    main()
