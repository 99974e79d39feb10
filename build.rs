//! Passes on PyO3's `Py_3_x` cfgs, for C-API functions that differ between CPython versions, and
//! the docstrings of the stub, which `help()` shows: the macro `doc!` includes them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    {
        pyo3_build_config::use_pyo3_cfgs();
        docstrings();
    }
}

/// Writes each docstring of the stub to a file that is named after its class and its function or
/// field.
#[cfg(feature = "python")]
fn docstrings() {
    const STUB: &str = "fastaudit_rs/_native.pyi";
    println!("cargo::rerun-if-changed={STUB}");
    let stub = std::fs::read_to_string(STUB).expect("the stub can be read");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let (mut class, mut named) = ("", None);
    let mut lines = stub.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let (is_top, indent) = (text == line, line.len() - text.len());
        let name = |kind| text.strip_prefix(kind)?.split(['(', ':']).next();
        if let Some(name) = name("class ") {
            (class, named) = (name, Some(name.to_owned()));
        } else if let Some(name) = name("def ") {
            class = if is_top { "" } else { class };
            named = Some([class, name].join(".").trim_matches('.').to_owned());
        } else if let Some((field, _)) = text.split_once(": Final[") {
            named = (!is_top).then(|| format!("{class}.{field}"));
        } else if let Some(first) = text.strip_prefix("\"\"\"") {
            let mut doc = vec![first];
            while !doc[doc.len() - 1].ends_with("\"\"\"") {
                let line = lines.next().expect("a docstring ends");
                doc.push(line.get(indent..).unwrap_or_default());
            }
            if let Some(named) = named.take() {
                let doc = doc.join("\n");
                let path = std::path::Path::new(&out).join(named);
                std::fs::write(path, doc.trim_end_matches('"').trim_end()).expect("it is written");
            }
        }
    }
}
