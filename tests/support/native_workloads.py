"""Workloads of packages with native code: each takes a directory, and returns what it made."""

import functools
import io
import os
import pickle


def pandas_json(base):
    import pandas as pd

    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": ["x", "y", None], "c": pd.date_range("2020-01-01", periods=3)}
    )
    return frame.to_json(orient="records", date_format="iso", default_handler=str)


def pandas_frames(base):
    import pandas as pd

    frame = pd.read_csv(io.StringIO("k,v\na,1\nb,2\na,3\n"))
    grouped = frame.groupby("k")["v"].sum()
    merged = frame.merge(grouped.rename("sum"), on="k").sort_values(["k", "v"])
    merged.to_csv(os.path.join(base, "frame.csv"))
    return merged.to_dict("list")


def numpy_arrays(base):
    import numpy as np

    array = np.arange(12, dtype=np.float64).reshape(3, 4)
    product = np.linalg.inv(array[:, :3] @ array[:, :3].T + np.eye(3) * 5)
    ordered = np.sort(np.random.default_rng(1).integers(0, 10, 8))
    np.save(os.path.join(base, "array.npy"), array)
    back = np.load(os.path.join(base, "array.npy"))
    applied = np.vectorize(lambda value: value + 1)(back)
    return product.round(6).tolist(), ordered.tolist(), applied.sum().item(), str(back.dtype)


def lxml_trees(base):
    from lxml import etree

    class Resolver(etree.Resolver):
        def resolve(self, url, identifier, context):
            return self.resolve_string("<!ENTITY e 'text'>", context)

    parser = etree.XMLParser(load_dtd=True, resolve_entities=True)
    parser.resolvers.add(Resolver())
    tree = etree.fromstring("<!DOCTYPE a SYSTEM 'a.dtd'><a><b n='1'>&e;</b><b n='2'/></a>", parser)
    names = etree.FunctionNamespace(None)
    names["double"] = lambda context, value: float(value) * 2
    found = tree.xpath("sum(//b[double(string(@n)) > 2]/@n)")
    for element in tree.iter("b"):
        element.set("seen", "yes")
    return found, etree.tostring(tree, pretty_print=True)


def pyarrow_tables(base):
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    summed = table.group_by("k").aggregate([("v", "sum")]).sort_by("k")
    path = os.path.join(base, "table.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(path, "rb") as file:
        back = pa.ipc.open_file(file).read_all()
    return summed.to_pydict(), back.equals(table), pc.sum(back["v"]).as_py()


def orjson_default(base):
    import orjson

    class Other:
        pass

    def default(value):
        return orjson.loads(orjson.dumps("other"))

    return orjson.dumps([Other(), {"a": Other()}], default=default, option=orjson.OPT_INDENT_2)


def cython_module(base):
    import injected

    return injected.workload()


@functools.cache
def sorted_dumps():
    """Made before there is a guard: events count the making of a `partial` as a call."""
    import orjson

    return functools.partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)


def orjson_by_others(base):
    """Calls that native code of the standard library makes."""
    import orjson

    texts, dumps = [b"[1]", b"{}", b"2"], sorted_dumps()
    return sorted(map(orjson.loads, texts), key=repr), [dumps(text.decode()) for text in texts]


def pybind11_contours(base):
    """`contourpy`."""
    import contourpy
    import numpy as np

    z = np.add.outer(np.arange(6.0), np.arange(6.0))
    generator = contourpy.contour_generator(z=z, name="serial")
    return [line.tolist() for line in generator.lines(4.5)], generator.chunk_count


def nanobind_solids(base):
    """`manifold3d`."""
    import manifold3d

    cube = manifold3d.Manifold.cube([1.0, 1.0, 1.0]).translate([1.0, 0.0, 0.0])
    other = manifold3d.Manifold.sphere(0.5, 12)
    return round((cube + other).volume(), 6), cube.num_vert(), len(cube.to_mesh().tri_verts)


def pyo3_tokens(base):
    """`tokenizers`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    encoded = tokenizer.encode("a b c")
    again = pickle.loads(pickle.dumps(tokenizer))
    return encoded.ids, encoded.tokens, again.decode(encoded.ids), tokenizer.token_to_id("b")
