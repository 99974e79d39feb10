"""The plugin of Dask's workers that `Policy.worker_plugin` makes."""

from typing import Any

try:
    from distributed import WorkerPlugin
except ImportError:
    raise ImportError("workers of Dask need: pip install 'fastaudit-rs[dask]'") from None

from . import Policy
from .guarded_functions import set_worker_policy


class GuardPlugin(WorkerPlugin):
    """Gives each worker a policy for the functions that are `guarded` without one.

    Register it with ``client.register_plugin(policy.worker_plugin())``. Workers that join or start
    anew later have it as well.
    """

    name = "fastaudit_rs"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def setup(self, worker: Any) -> None:
        """Give it to a worker."""
        set_worker_policy(self.policy)

    def teardown(self, worker: Any) -> None:
        """Take it away: guarded functions without a policy of their own fail then."""
        set_worker_policy(None)
