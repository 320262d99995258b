//! Type slots for the classes on the path of every request. They bypass PyO3's argument handling; PyO3's methods of the
//! same names stay as the fallback (shortcut `slots`).

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyClass, PyTypeInfo};

use super::call::Turn;
use crate::base::panic::describe;

/// Is a coroutine, whose turns the interpreter gives it by a slot.
pub(crate) trait Coroutine: PyTypeInfo {
    /// Take a turn.
    fn turn(slf: &Bound<'_, Self>) -> PyResult<Turn>;
}

/// A coroutine that can be awaited once.
pub(crate) trait Awaited: Coroutine {
    /// Whether it is being awaited already.
    fn is_awaited(slf: &Bound<'_, Self>) -> PyResult<bool>;
    /// Refuse to be awaited by a second.
    fn check_awaited(slf: &Bound<'_, Self>) -> PyResult<()>;
}

/// Is called as functions are.
pub(crate) trait Called: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync {
    fn entry(&self) -> &Entry;
    /// The number of its arguments: none or one.
    fn takes(&self) -> usize;
    /// The result of a call with them, if it is at hand. Must neither panic nor run Python code.
    fn recycled<'py>(&self, py: Python<'py>, argument: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>>;
    /// The same, made.
    fn make(slf: &Bound<'_, Self>, argument: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>>;
    /// A call with whatever arguments.
    fn call(
        slf: &Bound<'_, Self>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>>;
}

/// The interpreter's entry to an object that is [`Called`]. It finds this in the object, by its place.
pub(crate) struct Entry(#[expect(dead_code, reason = "the interpreter reads it")] ffi::vectorcallfunc);

impl Entry {
    pub(crate) const fn of<T: Called>() -> Self {
        Self(call_object::<T>)
    }
}

/// A call of a `T`.
unsafe extern "C" fn call_object<T: Called>(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    flags: libc::size_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter for an object of the type that `install_entry` has prepared, so with a `T` and a
    // thread state; `arguments` has as many live objects as `flags` says. The caller holds the object meanwhile.
    unsafe {
        let py = Python::assume_attached();
        let borrowed = ManuallyDrop::new(Bound::from_owned_ptr(py, object).cast_into_unchecked::<T>());
        let ours = borrowed.get();
        let count = flags & !ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        if !keywords.is_null() || count != ours.takes() || count > 1 {
            return call_with::<T>(object, arguments, count, keywords);
        }
        let argument = if count == 0 { None } else { Bound::from_borrowed_ptr_or_opt(py, *arguments) };
        match ours.recycled(py, argument.as_ref()) {
            Some(made) => made.into_ptr(),
            None => method(object, |ours: &Bound<'_, T>| T::make(ours, argument.as_ref())),
        }
    }
}

/// A call with other arguments than usual.
///
/// # Safety
/// `object` must be a live `T`, `keywords` null or a tuple, and `arguments` have `count` live objects and then one for each
/// of the keywords; the caller must hold a thread state.
#[cold]
#[inline(never)]
unsafe fn call_with<T: Called>(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the caller guarantees.
    unsafe {
        method(object, |object: &Bound<'_, T>| {
            let py = object.py();
            let given = |range: std::ops::Range<usize>| {
                range.map(|at| Bound::from_borrowed_ptr(py, *arguments.add(at))).collect::<Vec<_>>()
            };
            let named = PyDict::new(py);
            if let Some(names) = Bound::from_borrowed_ptr_or_opt(py, keywords) {
                let names = names.cast_into::<PyTuple>()?;
                for (name, value) in names.iter().zip(given(count..count + names.len())) {
                    named.set_item(name, value)?;
                }
            }
            T::call(object, &PyTuple::new(py, given(0..count))?, Some(&named))
        })
    }
}

/// The body of a C function whose first argument is a `T`: exceptions and panics become Python exceptions.
///
/// # Safety
/// `object` must be a live `T`, and the caller must hold a thread state.
#[inline]
unsafe fn method<T: PyTypeInfo>(
    object: *mut ffi::PyObject,
    body: impl FnOnce(&Bound<'_, T>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: the type is what the caller guarantees.
        let object = unsafe { Bound::from_borrowed_ptr(py, object).cast_into_unchecked::<T>() };
        // Panics that cost the connection its life are caught further in; left is a call from another thread.
        let result = catch_unwind(AssertUnwindSafe(|| body(&object)))
            .unwrap_or_else(|payload| Err(PyRuntimeError::new_err(describe(&*payload))));
        match result {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    })
}

/// Have the turns of a class of coroutines given by a slot. Only while its module is being made.
pub(crate) fn install_turns<T: Coroutine>(py: Python<'_>) {
    let kind = py.get_type::<T>().as_type_ptr();
    // SAFETY: a heap type that is ready and that no other thread knows yet, since its module is just being made; heap types
    // own their `tp_as_async`. The function has the signature of its slot.
    unsafe {
        (*(*kind).tp_as_async).am_send = Some(send::<T>);
        ffi::PyType_Modified(kind);
    }
}

/// The same, for one that is awaited. Only while its module is being made.
pub(crate) fn install_awaits<T: Awaited>(py: Python<'_>) {
    install_turns::<T>(py);
    let kind = py.get_type::<T>().as_type_ptr();
    // SAFETY: as above.
    unsafe {
        (*kind).tp_iternext = Some(next::<T>);
        (*(*kind).tp_as_async).am_await = Some(begin_await::<T>);
        ffi::PyType_Modified(kind);
    }
}

/// Have objects of the class of `callable` called by their [`Entry`], as functions are. Only while its module is being made.
pub(crate) fn install_entry<T: Called>(callable: &Bound<'_, T>) {
    let kind = callable.as_any().get_type().as_type_ptr();
    let entry: *const Entry = callable.get().entry();
    // SAFETY: the field is inside of the object, at the same place in each, since they have one layout. The type is ready,
    // and no other thread knows it yet, since its module is just being made.
    unsafe {
        (*kind).tp_vectorcall_offset = entry.byte_offset_from(callable.as_ptr());
        #[cfg(not(Py_GIL_DISABLED))]
        let () = (*kind).tp_flags |= ffi::Py_TPFLAGS_HAVE_VECTORCALL;
        #[cfg(Py_GIL_DISABLED)]
        (*kind).tp_flags.fetch_or(ffi::Py_TPFLAGS_HAVE_VECTORCALL, std::sync::atomic::Ordering::Relaxed);
        ffi::PyType_Modified(kind);
    }
}

/// `__await__`
unsafe extern "C" fn begin_await<T: Awaited>(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter through the slot of the type, so with a `T` and a thread state.
    unsafe {
        let py = Python::assume_attached();
        let ours = Bound::from_borrowed_ptr(py, object).cast_into_unchecked::<T>();
        match T::is_awaited(&ours) {
            Ok(false) => ours.into_ptr(),
            _ => {
                method(object, |ours: &Bound<'_, T>| T::check_awaited(ours).map(|()| ours.clone().into_any().unbind()))
            }
        }
    }
}

/// `__next__`: null without an exception is the end of one that returns None.
unsafe extern "C" fn next<T: Awaited>(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut result = std::ptr::null_mut();
    // SAFETY: called by the interpreter through the slot of the type, so with a `T` and a thread state. `result` is a new
    // reference or null; one that is not handed on is given back, or kept by the exception.
    unsafe {
        match send::<T>(object, std::ptr::null_mut(), &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => return result,
            ffi::PySendResult::PYGEN_RETURN if result != ffi::Py_None() => {
                ffi::PyErr_SetObject(ffi::PyExc_StopIteration, result);
            }
            ffi::PySendResult::PYGEN_RETURN | ffi::PySendResult::PYGEN_ERROR => {}
        }
        ffi::Py_XDECREF(result);
    }
    std::ptr::null_mut()
}

/// A turn.
unsafe extern "C" fn send<T: Coroutine>(
    object: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    let mut over = false;
    // SAFETY: called by the interpreter through the slot of the type, so with a `T` and a thread state; `result` is where
    // the new reference goes, null with an exception set.
    unsafe {
        *result = method(object, |ours: &Bound<'_, T>| match T::turn(ours)? {
            Turn::Yielded(future) => Ok(future),
            Turn::Returned(value) => {
                over = true;
                Ok(value)
            }
        });
        match (*result).is_null() {
            true => ffi::PySendResult::PYGEN_ERROR,
            false if over => ffi::PySendResult::PYGEN_RETURN,
            false => ffi::PySendResult::PYGEN_NEXT,
        }
    }
}
