"""`fastaudit_rs.ray`: sandboxes and guarded functions on a real cluster of two nodes."""

import concurrent.futures
import os
import time

import guarded_jobs
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("sandlock")

from fastaudit_rs import AuditDenied, Policy, Sandbox, guarded  # noqa: E402
from fastaudit_rs.ray import SandboxPool, setup_hook, task  # noqa: E402
from fastaudit_rs.sandbox import SandboxError  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # Its processes find the modules of the tests' support as the driver does.
        paths = [os.path.dirname(guarded_jobs.__file__), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 2, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def driver(cluster):
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()


def made():
    # A function of this module would be pickled by its name, and workers do not have it.
    return lambda: Sandbox(Policy())


class TestPools:
    def test_results(self, driver):
        with SandboxPool(made(), 2) as pool:
            result = pool.run("print(n); n * 2", value=True, variables={"n": 21})
            assert (result.value, result.stdout, result.returncode) == (42, "21\n", 0)
            denied = pool.run("open('/etc/ours', 'w')")
            assert denied.violations[0].path == "/etc/ours"
            assert denied.error.kind == "fastaudit_rs.AuditDenied"
            late = pool.run("while True: pass", timeout=0.5)
            assert late.killed_by == "wall_seconds"
            with pytest.raises(TypeError, match="variables"):
                pool.submit("1", variables={"n": object()})
        with pytest.raises(RuntimeError, match="the pool is closed"):
            pool.submit("1")

    def test_a_node_that_dies(self, driver):
        """Each snippet has one result, or one error that says why."""
        other = driver.add_node(num_cpus=2)
        driver.wait_for_nodes()
        with SandboxPool(made(), 2) as pool:
            pool.run("1")
            code = "import os, time; time.sleep(0.01); n"
            futures = [pool.submit(code, value=True, variables={"n": n}) for n in range(1000)]
            while sum(future.done() for future in futures) < 500:
                time.sleep(0.05)
            assert repr(pool) == "<SandboxPool on 2 nodes>"
            driver.remove_node(other, allow_graceful=False)
            _, waiting = concurrent.futures.wait(futures, timeout=120)
        assert not waiting
        lost = [future.exception() for future in futures if future.exception() is not None]
        assert len(lost) <= 2
        for error in lost:
            assert isinstance(error, SandboxError)
            assert "was lost while it ran the code" in str(error)
        values = [future.result().value for future in futures if future.exception() is None]
        expected = [n for n, future in enumerate(futures) if future.exception() is None]
        assert values == expected

    def test_a_node_that_joins(self, driver):
        with SandboxPool(made(), 1) as pool:
            pool.run("1")
            other = driver.add_node(num_cpus=2)
            deadline = time.monotonic() + 60
            while repr(pool) != "<SandboxPool on 2 nodes>":
                assert time.monotonic() < deadline
                pool.run("1")
        driver.remove_node(other)

    def test_an_actor_that_dies(self, driver):
        """It is made anew on its node."""
        with SandboxPool(made(), 1) as pool:
            future = pool.submit("import time; time.sleep(60)")
            while not future.running():
                time.sleep(0.05)
            time.sleep(1)
            [node] = pool._nodes.values()
            ray.kill(node.actor)
            with pytest.raises(SandboxError, match="was lost while it ran the code"):
                future.result(timeout=30)
            assert pool.run("6 * 7", value=True).value == 42

    def test_a_sandbox_that_cannot_be_made(self, driver):
        def make():
            raise ValueError("no such sandbox")

        with SandboxPool(make, 1) as pool:
            with pytest.raises(
                SandboxError, match=r"no node of the cluster is left: .*no such sandbox"
            ):
                pool.submit("1").result(timeout=60)

    def test_it_is_closed_meanwhile(self, driver):
        pool = SandboxPool(made(), 1)
        futures = [pool.submit("import time; time.sleep(60)") for _ in range(2)]
        while not futures[0].running():
            time.sleep(0.05)
        pool.close()
        for future in futures:
            with pytest.raises(RuntimeError, match="closed"):
                future.result(timeout=30)
        assert repr(pool) == "<SandboxPool on 0 nodes, closed>"

    def test_without_a_cluster(self):
        with pytest.raises(RuntimeError, match=r"call ray\.init\(\) first"):
            SandboxPool(made())
        with pytest.raises(
            TypeError, match="make must be a function that makes a Sandbox, not str"
        ):
            SandboxPool("sandbox")

    def test_preload_takes_names_of_modules(self, driver):
        with pytest.raises(TypeError, match=r"not str: write \['numpy'\]"):
            SandboxPool(made(), preload="numpy")


class TestTasks:
    def test_a_policy_of_its_own(self, driver, tmp_path):
        ok, out = tmp_path / "ok", tmp_path / "out"
        ok.mkdir()
        make = task(guarded(Policy(write=[str(ok)]))(os.mkdir), num_cpus=1)
        ray.get(make.remote(str(ok / "a")))
        with pytest.raises(AuditDenied) as raised:
            ray.get(make.remote(str(out)))
        assert raised.value.path == str(out)
        assert "To allow it" in str(raised.value)
        assert os.listdir(tmp_path) == ["ok"]

    def test_coroutine_functions(self, driver, tmp_path):
        make = task(guarded(Policy(write=[str(tmp_path)]))(guarded_jobs.make_later))
        ray.get(make.remote(str(tmp_path / "a")))
        with pytest.raises(AuditDenied):
            ray.get(make.remote("/srv/ours"))
        assert os.listdir(tmp_path) == ["a"]

    def test_the_policy_of_the_workers(self, cluster, tmp_path, request):
        hook = setup_hook(Policy(write=[str(tmp_path)]))
        ray.init(
            address=cluster.address,
            log_to_driver=False,
            runtime_env={"worker_process_setup_hook": hook},
        )
        request.addfinalizer(ray.shutdown)
        make = task(guarded(guarded_jobs.make))
        ray.get(make.remote(str(tmp_path / "a")))
        with pytest.raises(AuditDenied):
            ray.get(make.remote("/srv/ours"))
        with pytest.raises(AuditDenied):
            ray.get(task(guarded_jobs.decorated).remote(str(tmp_path / "b")))

    def test_without_a_policy(self, driver):
        with pytest.raises(RuntimeError, match="setup_hook"):
            ray.get(task(guarded(guarded_jobs.make)).remote("a"))

    def test_what_it_takes(self):
        with pytest.raises(TypeError, match=r"write task\(guarded\(function\)\)"):
            task(os.mkdir)
