"""Native functions of declared packages that write files: below the roots, and nowhere else.

Each is tried with the real package, where that is installed.
"""

import sys

import pytest

from fastaudit_rs import AuditDenied, mk_audit

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="has no sys.monitoring")

#: A package; what is imported and made before the guard; and what then writes `path`.
WRITERS = {
    "h5py": ("h5py", "import h5py", "h5py.File(path, 'w').close()"),
    "h5py, appending": ("h5py", "import h5py", "h5py.File(path, 'a').close()"),
    "tables": ("tables", "import tables", "tables.open_file(path, 'w').close()"),
    "netCDF4": ("netCDF4", "import netCDF4", "netCDF4.Dataset(path, 'w').close()"),
    "parquet": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.parquet as pq; table = pa.table({'a': [1]})",
        "pq.write_table(table, path)",
    ),
    "feather": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.feather as pf; table = pa.table({'a': [1]})",
        "pf.write_feather(table, path)",
    ),
    "a file of Arrow": ("pyarrow", "import pyarrow as pa", "pa.OSFile(path, 'wb').close()"),
    "Arrow": (
        "pyarrow",
        "import pyarrow as pa; table = pa.table({'a': [1]})",
        "pa.ipc.new_file(path, table.schema).close()",
    ),
    "parquet by pandas": (
        "pandas",
        "import pandas as pd, pyarrow; frame = pd.DataFrame({'a': [1]})",
        "frame.to_parquet(path)",
    ),
    "HDF by pandas": (
        "pandas",
        "import pandas as pd, tables; frame = pd.DataFrame({'a': [1]})",
        "frame.to_hdf(path, key='a')",
    ),
    "xmlfile": (
        "lxml",
        "import lxml.etree as etree",
        "with etree.xmlfile(path) as file: file.write(etree.Element('a'))",
    ),
    "xgboost": (
        "xgboost",
        "import numpy, xgboost as xgb\n"
        "data = xgb.DMatrix(numpy.ones((9, 2)), label=numpy.ones(9))\n"
        "booster = xgb.train({'nthread': 1}, data, 1)",
        "booster.save_model(path)",
    ),
    "shapes": (
        "geopandas",
        "import geopandas, shapely, pyogrio\n"
        "frame = geopandas.GeoDataFrame({'a': [1]}, geometry=[shapely.Point(0, 0)])",
        "frame.to_file(path, driver='GeoJSON')",
    ),
    "torch": ("torch", "import torch; tensor = torch.zeros(1)", "torch.save(tensor, path)"),
}

#: By which package pandas writes, which it does not require.
USED_BY_PANDAS = {"frame.to_parquet(path)": "pyarrow", "frame.to_hdf(path, key='a')": "tables"}


@pytest.mark.parametrize(("package", "before", "writes"), WRITERS.values(), ids=WRITERS)
def test_writes_below_the_roots_alone(package, before, writes, tmp_path):
    pytest.importorskip(package)
    pytest.importorskip(USED_BY_PANDAS.get(writes, package))
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    suffix = ".json" if package == "xgboost" else ".h5"
    made = {"path": str(outside / f"warm{suffix}")}
    exec(before, made)
    exec(writes, made)
    (outside / f"warm{suffix}").unlink()
    with mk_audit([inside], packages="data")():
        made["path"] = str(inside / f"x{suffix}")
        exec(writes, made)
        made["path"] = str(outside / f"x{suffix}")
        with pytest.raises(AuditDenied) as caught:
            exec(writes, made)
    assert (inside / f"x{suffix}").exists()
    assert list(outside.iterdir()) == []
    assert caught.value.path in {made["path"], str(outside)}


#: Functions that are called with a path that a call event does not show.
UNSEEN = {
    "csv": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.csv as csv; table = pa.table({'a': [1]})",
        "csv.write_csv(table, path)",
    ),
    "tokenizers": (
        "tokenizers",
        "import tokenizers; made = tokenizers.Tokenizer(tokenizers.models.BPE())",
        "made.save(path)",
    ),
    "lxml": (
        "lxml",
        "import lxml.etree as etree; tree = etree.ElementTree(etree.Element('a'))",
        "tree.write(path)",
    ),
}


@pytest.mark.parametrize(("package", "before", "writes"), UNSEEN.values(), ids=UNSEEN)
def test_what_cannot_be_seen_stays_denied(package, before, writes, tmp_path):
    pytest.importorskip(package)
    made = {"path": str(tmp_path / "x")}
    exec(before, made)
    with mk_audit([tmp_path], packages="data")(), pytest.raises(AuditDenied) as caught:
        exec(writes, made)
    assert caught.value.event == "fastaudit.call"
    assert list(tmp_path.iterdir()) == []


def test_reading_stays_open(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = [1]
    with mk_audit([], packages=["h5py"])(), h5py.File(path, "r") as file:
        assert file["a"][0] == 1


def test_a_path_that_could_be_another_the_next_time_is_not_taken(tmp_path):
    h5py = pytest.importorskip("h5py")
    pa = pytest.importorskip("pyarrow")

    class Liar(str):
        pass

    class Path:
        def __fspath__(self):
            return str(tmp_path / "x")

    with mk_audit([tmp_path], packages="data")():
        for path in (Liar(tmp_path / "x"), Path()):
            with pytest.raises((AuditDenied, TypeError)):
                pa.OSFile(path, "wb")
        with pytest.raises(AuditDenied):
            # Not by the package's own function, whose variables would say the mode.
            h5py.h5f.create(bytes(tmp_path.parent / "y"))
    assert list(tmp_path.iterdir()) == []
