"""`guarded`: functions that run under a guard in other processes, and on workers of Dask."""

import asyncio
import concurrent.futures
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import time

import guarded_jobs
import pytest

from fastaudit_rs import AuditDenied, Policy, guarded
from fastaudit_rs.guarded_functions import set_worker_policy


@pytest.fixture
def policy(places):
    return Policy(write=[places.ok])


class TestHere:
    def test_it_runs_under_a_guard(self, policy, places):
        make = guarded(policy)(os.mkdir)
        make(places.ok + "/a", mode=0o700)
        with pytest.raises(AuditDenied):
            make(places.out + "/a")
        os.mkdir(places.out + "/host")

    def test_it_is_named_as_the_function(self):
        assert guarded_jobs.decorated.__name__ == "decorated"
        assert guarded_jobs.decorated.__doc__ == "The decorated function."
        assert repr(guarded_jobs.decorated) == "<guarded decorated>"

    def test_coroutine_functions(self, policy, places):
        make = guarded(policy)(guarded_jobs.make_later)

        async def main():
            await make(places.ok + "/a")
            with pytest.raises(AuditDenied):
                await make(places.out + "/a")

        asyncio.run(main())

    def test_methods(self, policy, places):
        class Things:
            make = guarded(policy)(guarded_jobs.Things.make_in)
            mkdir = guarded(policy)(os.mkdir)

        with pytest.raises(AuditDenied):
            Things().make(places.out)
        Things().mkdir(places.ok + "/a")
        method = pickle.loads(pickle.dumps(guarded_jobs.Things().method))
        with pytest.raises(AuditDenied):
            method(places.ok + "/b")

    def test_a_function_with_attributes_of_its_own(self, policy, places):
        def make(path):
            os.mkdir(path)

        make.policy = Policy(write=None)
        with pytest.raises(AuditDenied):
            guarded(policy)(make)(places.out + "/a")

    @pytest.mark.parametrize("what", [3, "policy", None])
    def test_what_it_takes(self, what):
        with pytest.raises(TypeError, match="guarded takes a function or a Policy, not"):
            guarded(what)

    def test_generator_functions(self, policy):
        def generate():
            yield 1

        with pytest.raises(TypeError, match="generator"):
            guarded(policy)(generate)

    def test_without_a_policy(self, policy, places):
        make = guarded(guarded_jobs.make)
        with pytest.raises(RuntimeError, match="has no policy, and this worker has none"):
            make(places.out + "/a")
        set_worker_policy(policy)
        try:
            make(places.ok + "/a")
            with pytest.raises(AuditDenied):
                make(places.out + "/a")
        finally:
            set_worker_policy(None)


class TestPickling:
    def test_a_function_with_its_policy(self, policy, places):
        make = pickle.loads(pickle.dumps(guarded(policy)(guarded_jobs.make)))
        assert make.policy == policy
        with pytest.raises(AuditDenied):
            make(places.out + "/a")

    def test_what_was_decorated(self):
        assert pickle.loads(pickle.dumps(guarded_jobs.decorated)) is guarded_jobs.decorated
        method = guarded_jobs.Things.__dict__["method"]
        assert pickle.loads(pickle.dumps(method)) is method


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pool(policy, places, method):
    # The test's name is in the path of the server's socket, which holds 107 bytes.
    context = multiprocessing.get_context(method)
    make = guarded(policy)(guarded_jobs.make)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert pool.submit(make, places.ok + "/a").result() != os.getpid()
        with pytest.raises(AuditDenied) as raised:
            pool.submit(make, places.out + "/a").result()
        with pytest.raises(AuditDenied):
            pool.submit(guarded_jobs.decorated, places.ok + "/b").result()
    denied = raised.value
    assert (denied.event, denied.path, denied.rule) == ("os.mkdir", places.out + "/a", "write")
    assert denied.call_chain[-1] == "guarded_jobs.make"
    assert not any("test_guarded_functions" in name for name in denied.call_chain)
    assert os.listdir(places.out) == []


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    import dask

    options = {
        "distributed.scheduler.allowed-failures": 20,
        "distributed.worker.daemon": False,
        "temporary-directory": str(tmp_path_factory.mktemp("dask")),
    }
    with (
        dask.config.set(options),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(sys.path.append, os.path.dirname(guarded_jobs.__file__))
        yield client


class TestDask:
    @pytest.fixture
    def of_workers(self, client, policy):
        client.register_plugin(policy.worker_plugin())
        yield
        client.unregister_worker_plugin("fastaudit_rs")

    @pytest.mark.slow
    def test_the_policy_of_the_workers(self, client, of_workers, places):
        make = guarded(guarded_jobs.make)
        paths = [f"{places.ok}/{number}" for number in range(12)]
        pids = client.gather([client.submit(make, path, pure=False) for path in paths])
        assert os.getpid() not in pids
        assert sorted(os.listdir(places.ok), key=int) == [str(number) for number in range(12)]
        job = client.submit(make, places.out + "/a", pure=False)
        with pytest.raises(AuditDenied) as raised:
            job.result()
        denied = raised.value
        assert (denied.event, denied.path, denied.rule) == ("os.mkdir", places.out + "/a", "write")
        assert "To allow it" in str(denied)
        assert os.listdir(places.out) == []

    def test_a_policy_of_its_own(self, client, places):
        make = guarded(Policy(write=[places.out]))(guarded_jobs.make)
        client.submit(make, places.out + "/a", pure=False).result()
        with pytest.raises(AuditDenied):
            client.submit(make, places.ok + "/a", pure=False).result()

    def test_coroutine_functions(self, client, policy, places):
        make = guarded(policy)(guarded_jobs.make_later)
        client.submit(make, places.ok + "/a", pure=False).result()
        with pytest.raises(AuditDenied):
            client.submit(make, places.out + "/a", pure=False).result()
        assert (os.listdir(places.ok), os.listdir(places.out)) == (["a"], [])

    def test_what_is_not_guarded_is_free(self, client, of_workers, places):
        client.submit(guarded_jobs.make, places.out + "/a", pure=False).result()
        assert os.listdir(places.out) == ["a"]

    @pytest.mark.slow
    def test_workers_that_die(self, client, of_workers, places):
        """Nothing that was acknowledged is lost, and new workers have the policy."""
        square = guarded(guarded_jobs.square)
        first = client.map(square, range(20), pure=False)
        assert client.gather(first) == [number * number for number in range(20)]
        later = client.map(square, range(100, 160), [0.02] * 60, pure=False)
        pids = client.run(os.getpid)
        for pid in list(pids.values())[:2]:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        assert client.gather(first) == [number * number for number in range(20)]
        assert client.gather(later) == [number * number for number in range(100, 160)]
        client.wait_for_workers(3, timeout=60)
        assert set(client.run(os.getpid).values()) != set(pids.values())
        make = guarded(guarded_jobs.make)
        jobs = [
            client.submit(make, f"{places.out}/{number}", pure=False, workers=[address])
            for number, address in enumerate(client.run(os.getpid))
        ]
        for job in jobs:
            with pytest.raises(AuditDenied):
                job.result()
        assert os.listdir(places.out) == []


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), [("distributed", "dask"), ("ray", "ray")])
def test_without_the_package(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"fastaudit_rs.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'fastaudit-rs\[{name}\]'"):
        importlib.import_module(f"fastaudit_rs.{name}")
