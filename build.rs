//! Passes on PyO3's `Py_3_x` cfgs, for C-API functions that differ between CPython versions.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    pyo3_build_config::use_pyo3_cfgs();
}
