//! The callee of a CALL event: Python code, the standard library, or native code of someone else.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyTuple, PyType, PyWeakrefMethods};

use crate::python::callees::callee_cache as cache;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::functions::{self, Builtin};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, layout, objects};
use crate::python::importing::loaded::{self, StandardLibrary};

const MAX_WRAPPERS: usize = 32;

/// Called before any callee is looked at: an import under a guard would be judged.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    layout::prepare(py)?;
    StandardLibrary::get(py).map(|_| ())
}

pub struct Native<'py> {
    pub name: CalleeName<'py>,
    /// The callee; if the standard library calls its first argument, that argument.
    pub function: Bound<'py, PyAny>,
}

pub struct CalleeName<'py> {
    pub module: Bound<'py, PyString>,
    pub own: Bound<'py, PyString>,
}

impl<'py> CalleeName<'py> {
    pub fn full(&self) -> PyResult<Bound<'py, PyString>> {
        raw::dotted(&self.module, &self.own)
    }
}

/// Returns the native code, not of the standard library, that a call of `callee` runs; `None` for
/// Python code, the standard library, and callables without a name. `first` is its first argument,
/// if it has one.
pub fn native<'py>(
    callee: &Bound<'py, PyAny>,
    first: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Native<'py>>> {
    let known = StandardLibrary::get(callee.py())?;
    let mut function = Some(callee.clone());
    let name = if known.calls_its_first(callee) {
        function = first.cloned();
        match first {
            // The metaclass's own `__call__` is not meant: `native_name` asks for it.
            Some(first) if callee.is(&known.type_call) => constructor(known, first)?,
            Some(first) if !cache::is_plainly_quiet(first.as_borrowed()) && first.is_callable() => {
                native_name(known, first)?
            }
            _ => None,
        }
    } else if callee.get_type().is(&known.method_caller) {
        function = match first {
            Some(first) => method_of(callee, first)?,
            None => None,
        };
        match &function {
            Some(method) => native_name(known, method)?,
            None => None,
        }
    } else {
        native_name(known, callee)?
    };
    let named = name.zip(function);
    Ok(named.map(|(name, function)| Native { name, function }))
}

fn native_name<'py>(
    known: &StandardLibrary,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<CalleeName<'py>>> {
    let mut callee = callee.clone();
    for _ in 0..MAX_WRAPPERS {
        if raw::is_python_function(&callee) {
            return Ok(None);
        }
        if let Ok(class) = callee.cast::<PyType>() {
            return name_class(known, class);
        }
        callee = match stands_for(known, &callee)? {
            Step::Itself => return name_native(known, &callee),
            Step::Constructor(class) => return constructor(known, &class),
            Step::Of(inner) => inner,
        };
    }
    name_native(known, &callee)
}

enum Step<'py> {
    Itself,
    Of(Bound<'py, PyAny>),
    /// The result of `type.__call__` for a class, whatever its metaclass says.
    Constructor(Bound<'py, PyAny>),
}

fn stands_for<'py>(known: &StandardLibrary, callee: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
    let py = callee.py();
    let ty = callee.get_type();
    if Builtin::cast(callee).is_some() {
        return Ok(Step::Itself);
    }
    if ty.is(&known.method) || ty.is(&known.static_method) || ty.is(&known.class_method) {
        return callee.attr(intern!(py, "__func__")).map(Step::Of);
    }
    if ty.is(&known.method_wrapper) {
        let name = callee.attr(intern!(py, "__name__"))?;
        if !name.cast::<PyString>().is_ok_and(|name| name == "__call__") {
            return Ok(Step::Itself);
        }
        let receiver = callee.attr(intern!(py, "__self__"))?;
        let definer = callee.attr(intern!(py, "__objclass__"))?;
        return Ok(if definer.is(py.get_type::<PyType>()) {
            Step::Constructor(receiver)
        } else {
            Step::Of(receiver)
        });
    }
    if raw::is_subtype(&ty, known.partial.bind(py)) {
        return callee.attr(intern!(py, "func")).map(Step::Of);
    }
    if ty.is(&known.lru_cache) {
        let wrapped = attribute(callee, intern!(py, "__wrapped__"))?;
        return Ok(wrapped.map_or(Step::Itself, Step::Of));
    }
    if ty.is(&known.method_caller) {
        // The method depends on the object: see `method_callers`.
        return Ok(Step::Itself);
    }
    if ty.is(&known.generic_alias) {
        return callee.attr(intern!(py, "__origin__")).map(Step::Of);
    }
    if let Some(proxy) = objects::weak_proxy(callee) {
        return Ok(proxy.upgrade().map_or(Step::Itself, Step::Of));
    }
    // An instance: calling it calls the `__call__` of its class.
    let version = layout::version_of_type(callee.as_borrowed());
    let call = raw::type_lookup(&ty, intern!(py, "__call__"));
    Ok(match call {
        Some(call) if raw::is_python_function(&call) => {
            cache::remember_instances(callee.as_borrowed(), version);
            Step::Of(call)
        }
        Some(call) if !is_slot(&call) => Step::Of(call),
        Some(call) => {
            if !is_foreign(known, &call)? {
                cache::remember_instances(callee.as_borrowed(), version);
            }
            Step::Itself
        }
        None => Step::Itself,
    })
}

/// Returns whether a class's `__call__` is its own native code, not put there by Python code.
fn is_slot(call: &Bound<'_, PyAny>) -> bool {
    let py = call.py();
    raw::type_lookup(&call.get_type(), intern!(py, "__objclass__")).is_some()
}

fn name_class<'py>(
    known: &StandardLibrary,
    class: &Bound<'py, PyType>,
) -> PyResult<Option<CalleeName<'py>>> {
    let py = class.py();
    let versions = layout::class_versions(class.as_borrowed());
    let metaclass = class.get_type();
    let call = raw::type_lookup(&metaclass, intern!(py, "__call__"));
    let name = match call {
        // Python code, whose own calls are seen.
        Some(call) if raw::is_python_function(&call) => None,
        Some(call) if !call.is(&known.type_call) && is_foreign(known, &call)? => {
            qualified_name(class)?
        }
        _ => constructor(known, class)?,
    };
    // A class that calls its first argument has to be looked at each time.
    if name.is_none() && !known.calls_its_first(class) {
        cache::remember_class(class.as_borrowed(), versions);
    }
    Ok(name)
}

/// The name of the foreign native class whose code runs when `type.__call__` makes an instance.
fn constructor<'py>(
    known: &StandardLibrary,
    class: &Bound<'py, PyAny>,
) -> PyResult<Option<CalleeName<'py>>> {
    let py = class.py();
    let Ok(class) = class.cast::<PyType>() else {
        return Ok(None);
    };
    let new = raw::type_lookup(class, intern!(py, "__new__"));
    let init = raw::type_lookup(class, intern!(py, "__init__"));
    for (slot, owner) in [(new, "__self__"), (init, "__objclass__")] {
        let Some(slot) = slot.filter(|slot| !raw::is_python_function(slot)) else {
            continue;
        };
        if let Some(owner) = attribute(&slot, &PyString::intern(py, owner))?
            && let Ok(owner) = owner.cast::<PyType>()
        {
            if is_foreign_class(known, owner)? {
                // A static class is native itself; others may inherit their constructor.
                let named = if objects::is_static(class) { class } else { owner };
                return qualified_name(named);
            }
        } else if let Some(name) = native_name(known, &slot)? {
            // `__new__ = staticmethod(native)`, or a function of another kind.
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn is_foreign_class(known: &StandardLibrary, class: &Bound<'_, PyType>) -> PyResult<bool> {
    let module = string_attribute(class, intern!(class.py(), "__module__"))?;
    Ok(module.is_none_or(|module| !known.is_quiet(&module)))
}

/// Returns whether a descriptor was defined by a class outside the standard library.
fn is_foreign(known: &StandardLibrary, descriptor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = descriptor.py();
    match attribute(descriptor, intern!(py, "__objclass__"))? {
        Some(class) => match class.cast::<PyType>() {
            Ok(class) => is_foreign_class(known, class),
            Err(_) => Ok(true),
        },
        None => Ok(native_name(known, descriptor)?.is_some()),
    }
}

pub fn qualified_name<'py>(class: &Bound<'py, PyAny>) -> PyResult<Option<CalleeName<'py>>> {
    let py = class.py();
    let module = string_attribute(class, intern!(py, "__module__"))?;
    let name = string_attribute(class, intern!(py, "__qualname__"))?;
    match (module, name) {
        (Some(module), Some(own)) => Ok(Some(CalleeName { module, own })),
        _ => Ok(None),
    }
}

fn name_native<'py>(
    known: &StandardLibrary,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<CalleeName<'py>>> {
    let py = callee.py();
    let Some(mut module) = module(callee)? else {
        return Ok(None);
    };
    if known.is_quiet(&module) {
        // Python code can set the module that a function names as its own.
        let code = Builtin::cast(callee).filter(|function| function.module().is_some());
        let Some(own) =
            code.and_then(|code| loaded::foreign_module(known, code.function() as usize))
        else {
            remember_quiet(known, callee)?;
            return Ok(None);
        };
        module = PyString::new(py, &own);
    }
    let mut name = string_attribute(callee, intern!(py, "__qualname__"))?;
    if name.is_none() {
        name = string_attribute(callee, intern!(py, "__name__"))?;
    }
    match name {
        Some(own) => Ok(Some(CalleeName { module, own })),
        None => name_instance(known, callee),
    }
}

/// Remembers a function of the standard library; not `__call__`, which depends on its receiver.
fn remember_quiet(known: &StandardLibrary, callee: &Bound<'_, PyAny>) -> PyResult<()> {
    let name = attribute(callee, intern!(callee.py(), "__name__"))?;
    let is_call =
        name.is_none_or(|name| name.cast::<PyString>().is_ok_and(|name| name == "__call__"));
    if !is_call && !known.calls_its_first(callee) {
        cache::remember_function(callee.as_borrowed());
    }
    Ok(())
}

/// An instance of a native class has no name; its class has.
fn name_instance<'py>(
    known: &StandardLibrary,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<CalleeName<'py>>> {
    let py = callee.py();
    let call = raw::type_lookup(&callee.get_type(), intern!(py, "__call__"));
    let class = match call {
        Some(call) => attribute(&call, intern!(py, "__objclass__"))?,
        None => None,
    };
    let class = class.map(|class| qualified_name(&class)).transpose()?;
    let Some(class) = class.flatten().filter(|class| !known.is_quiet(&class.module)) else {
        return Ok(None);
    };
    let own = raw::dotted(&class.own, intern!(py, "__call__"))?;
    Ok(Some(CalleeName { own, ..class }))
}

fn module<'py>(callee: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = callee.py();
    let dunder_module = intern!(py, "__module__");
    if let Some(function) = Builtin::cast(callee) {
        if let Some(module) = function.module().and_then(|module| module.cast_into().ok()) {
            return Ok(Some(module));
        }
        let Some(receiver) = function.receiver() else {
            return Ok(None);
        };
        if layout::is_new(callee.as_borrowed()) {
            return string_attribute(&receiver, dunder_module);
        }
        return string_attribute(functions::definer(&function, &receiver).as_any(), dunder_module);
    }
    if let Some(module) = string_attribute(callee, dunder_module)? {
        return Ok(Some(module));
    }
    match attribute(callee, intern!(py, "__objclass__"))? {
        Some(class) => string_attribute(&class, dunder_module),
        // An instance of a static class names no module; the class does.
        None => string_attribute(&callee.get_type(), dunder_module),
    }
}

fn string_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    Ok(attribute(object, name)?.and_then(|value| value.cast_into().ok()))
}

/// Returns an attribute; `None` if it does not exist or reading it raises an `Exception`.
fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.attr(name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

// The method that an `operator.methodcaller` calls: CALL events do not show calls that native code
// makes.

/// The method of an object that a method caller calls, read without running code of the object's.
pub fn method_of<'py>(
    caller: &Bound<'py, PyAny>,
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(name) = name(caller)? else {
        return Ok(None);
    };
    if let Ok(module) = object.cast::<PyModule>() {
        return module.dict().get_item(name);
    }
    let of_class = object.cast::<PyType>().ok();
    let found = of_class.and_then(|class| raw::type_lookup(class, &name));
    Ok(found.or_else(|| raw::type_lookup(&object.get_type(), &name)))
}

/// Returns the name of the method. Only its pickled form has it: the class with the name and the
/// other arguments, or a `partial` of the class if there are arguments by name.
fn name<'py>(caller: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let told = caller.invoke_method0(intern!(caller.py(), "__reduce__"))?;
    let told = told.cast_into::<PyTuple>()?;
    let arguments = match told.get_item(0)?.is_instance_of::<PyType>() {
        true => told.get_item(1)?,
        false => told.get_item(0)?.attr(intern!(caller.py(), "args"))?,
    };
    let arguments = arguments.cast_into::<PyTuple>()?;
    Ok(arguments.get_item(0)?.cast_into().ok())
}
