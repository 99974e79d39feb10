//! Whether a host's callback can do what it will be asked to.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::errors;

/// What a callback is called with.
pub struct Contract {
    name: &'static str,
    signature: &'static str,
    arguments: usize,
}

/// `before_deny(event, args, frame, msg, data)`.
pub const BEFORE_DENY: Contract = Contract {
    name: "before_deny",
    signature: "(event, args, frame, msg, data)",
    arguments: 5,
};

/// `on_call(caller, callee, fn, code, off, data)`.
pub const ON_CALL: Contract = Contract {
    name: "on_call",
    signature: "(caller, callee, fn, code, off, data)",
    arguments: 6,
};

/// `on_denied(denied)`.
pub const ON_DENIED: Contract = Contract {
    name: "on_denied",
    signature: "(denied)",
    arguments: 1,
};

/// `on_violation(violation)`.
pub const ON_VIOLATION: Contract = Contract {
    name: "on_violation",
    signature: "(violation)",
    arguments: 1,
};

/// Checks a callback before anything depends on it.
///
/// # Errors
/// `TypeError` when it cannot be called, does not take the arguments, or would return a coroutine
/// or generator, which is true whatever it would have answered.
pub fn check(callback: &Bound<'_, PyAny>, contract: &Contract) -> PyResult<()> {
    let py = callback.py();
    if !callback.is_callable() {
        return Err(errors::not_callable(
            contract.name,
            contract.signature,
            callback,
        ));
    }
    let inspect = py.import("inspect")?;
    let call = callback.get_type().getattr("__call__")?;
    for what in [
        "iscoroutinefunction",
        "isasyncgenfunction",
        "isgeneratorfunction",
    ] {
        let is = inspect.getattr(what)?;
        if is.call1((callback,))?.is_truthy()? || is.call1((&call,))?.is_truthy()? {
            return Err(errors::not_a_plain_function(contract.name, callback));
        }
    }
    let signature = match inspect.call_method1("signature", (callback,)) {
        Ok(signature) => signature,
        // Some native functions tell no signature. They get the benefit of the doubt.
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(()),
        Err(error) => return Err(error),
    };
    let arguments = PyTuple::new(py, (0..contract.arguments).map(|_| py.None()))?;
    match signature.getattr("bind")?.call1(arguments) {
        Ok(_) => Ok(()),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let error = errors::wrong_signature(contract.name, contract.signature, callback);
            Err(error)
        }
        Err(error) => Err(error),
    }
}
