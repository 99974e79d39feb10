"""Real packages that write files in native code: in the roots they do, outside they are denied."""

import os
import traceback

import pytest

from fastaudit_rs import AuditDenied, Policy

pytestmark = pytest.mark.slow


def lxml(path):
    import lxml.etree as etree

    etree.ElementTree(etree.fromstring("<a/>")).write(path)


def arrow(path):
    import pyarrow

    pyarrow.OSFile(path, "wb").close()


def parquet(path):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1]}), path)


def csv(path):
    import pyarrow
    from pyarrow import csv

    csv.write_csv(pyarrow.table({"a": [1]}), path)


def directory(path):
    from pyarrow import fs

    fs.LocalFileSystem().create_dir(path)


def hdf(path):
    import h5py

    h5py.File(path, "w").close()


def polars_csv(path):
    import polars

    polars.DataFrame({"a": [1]}).write_csv(path)


def polars_sink(path):
    import polars

    polars.LazyFrame({"a": [1]}).sink_parquet(path)


def picture(path):
    import cv2
    import numpy

    # It shows no reason.
    if not cv2.imwrite(path + ".png", numpy.zeros((1, 1))):
        raise OSError


def database(path):
    import duckdb

    duckdb.connect(path).close()


def copied(path):
    import duckdb

    duckdb.connect().execute(f"copy (select 1) to '{path}' (format parquet)")


WRITERS = {
    "lxml": [lxml],
    "pyarrow": [arrow, parquet, csv, directory],
    "h5py": [hdf],
    "polars": [polars_csv, polars_sink],
    "cv2": [picture],
    "duckdb": [database, copied],
}


@pytest.mark.parametrize(
    ("package", "write"),
    [(package, write) for package, writers in WRITERS.items() for write in writers],
)
@pytest.mark.parametrize("preset", ["workspace", "notebook"])
def test_it_writes_in_the_roots_alone(package, write, preset, tmp_path, monkeypatch):
    pytest.importorskip(package)
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    monkeypatch.chdir(root)
    policy = Policy.preset(preset)
    with policy.guard()() as guard:
        write(str(root / "file"))
        assert [denial for denial in guard.violations if denial.library] == []
    assert os.listdir(root) != []
    with policy.guard()() as guard:
        with pytest.raises(Exception) as raised:
            write(str(outside / "file"))
        denials = [denial for denial in guard.violations if denial.library]
    assert os.listdir(outside) == []
    assert not isinstance(raised.value, AuditDenied)
    denial = denials[0]
    assert denial.package == package
    assert f"Asked for by native code: {package}\n" in str(denial)
    # A traceback shows what the hint says, which allows it.
    with pytest.raises(Exception) as raised, policy.guard()():
        write(str(outside / "file"))
    text = "".join(traceback.format_exception(raised.value))
    assert (f"write = ['.', '{outside}" in text) == (package != "cv2")
    wider = policy
    for _ in range(3):
        wider = wider.replace(**denial.suggestion)
        with wider.guard()() as guard:
            try:
                write(str(outside / "file"))
            except Exception:
                denial = guard.violations[-1]
            else:
                break
    else:
        pytest.fail(f"denied after three hints: {denial}")
    assert os.listdir(outside) != []
