//! `fastaudit_rs`: a guard that lets LLM-generated Python run in a normal Python process
//! without accidental damage.
//!
//! Layers, and arrows point down only:
//!
//! - [`policy`]: the rules of a guard. Safe Rust over plain values, no interpreter needed.
//! - [`kernel`]: the same policy, as far as the kernel can hold it for a thread, and the processes
//!   that a guard or a sandbox started.
//! - [`native`]: effects of native code, judged as its functions of the C library are called.
//! - `python` (feature `python`, on by default): the CPython binding, a PEP 578 audit hook and
//!   a PEP 669 CALL monitor that decode Python objects, ask the policy and raise the denial.

#![deny(unsafe_code)]

#[cfg(all(
    feature = "python",
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))
))]
compile_error!("fastaudit_rs supports Linux on x86-64 and aarch64");

#[cfg(target_os = "linux")]
pub mod kernel;
#[cfg(target_os = "linux")]
pub mod native;
pub mod policy;
#[cfg(feature = "python")]
mod python;
