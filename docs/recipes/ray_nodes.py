"""Code in sandboxes on all nodes of a Ray cluster."""

import ray

from fastaudit_rs import Policy, Sandbox
from fastaudit_rs.ray import SandboxPool


def make() -> Sandbox:
    """Make the sandbox of a node."""
    return Sandbox(Policy())


def main() -> None:
    """Run code on a cluster: here a node is started for it, in practice `address` names one."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with SandboxPool(make, 2) as pool:
        futures = [pool.submit("n * n", value=True, variables={"n": n}) for n in range(5)]
        print([future.result().value for future in futures])
        print(pool.run("open('/srv/notes', 'w')").violations[0].path, "was denied")
    ray.shutdown()


if __name__ == "__main__":
    main()
