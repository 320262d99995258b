//! Calls of Python objects that PyO3 does not wrap, or makes dearer than they are.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::base::shortcuts::{Shortcut, is_taken};

/// The outcome of a coroutine's turn.
pub(crate) enum Turn {
    /// It waits for this.
    Yielded(Py<PyAny>),
    /// It returned this.
    Returned(Py<PyAny>),
}

/// Give `coroutine` its turn: `coroutine.send(None)` without the `StopIteration`.
#[inline]
pub(crate) fn step(coroutine: &Bound<'_, PyAny>) -> PyResult<Turn> {
    let py = coroutine.py();
    let mut result = std::ptr::null_mut();
    // SAFETY: `coroutine` and None are live objects and we hold the thread state (`py`). PyIter_Send stores one new
    // reference in `result` for NEXT and RETURN, and sets an exception for ERROR.
    unsafe {
        match ffi::PyIter_Send(coroutine.as_ptr(), ffi::Py_None(), &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => Ok(Turn::Yielded(Bound::from_owned_ptr(py, result).unbind())),
            ffi::PySendResult::PYGEN_RETURN => Ok(Turn::Returned(Bound::from_owned_ptr(py, result).unbind())),
            ffi::PySendResult::PYGEN_ERROR => Err(PyErr::fetch(py)),
        }
    }
}

/// A copy of a `contextvars.Context`.
#[inline]
pub(crate) fn copy_context<'py>(context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: PyContext_Copy checks the type itself and returns a new reference, or sets an exception and returns null.
    unsafe { Bound::from_owned_ptr_or_err(context.py(), ffi::PyContext_Copy(context.as_ptr())) }
}

/// Run `body` in a `contextvars.Context`; raises if that is entered already.
#[inline]
pub(crate) fn in_context<R>(context: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> PyResult<R> {
    let py = context.py();
    // SAFETY: both functions check the type of their argument, a live object, and whether it may be entered or left;
    // they set an exception and return -1 otherwise. The context is left before this returns: a panic of `body` is
    // caught inside.
    unsafe {
        if ffi::PyContext_Enter(context.as_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        let result = body();
        if ffi::PyContext_Exit(context.as_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(result)
    }
}

/// `class(*arguments, **keywords)` without a copy of `keywords`, which a call would make: the shortcut `calls`.
#[inline]
pub(crate) fn instantiate<'py>(
    class: &Bound<'py, PyType>,
    arguments: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    // SAFETY: `class` is a live, ready type object, and what a call of it does is up to `type.__call__`, which this is:
    // `tp_new` gives a new reference or null with an exception set; if that object is one of the class, `tp_init` of its
    // own type fills it or sets an exception. Both only borrow their arguments, which live until the end of this function.
    unsafe {
        let kind = class.as_type_ptr();
        let is_plain = std::ptr::eq(ffi::Py_TYPE(class.as_ptr()), &raw const ffi::PyType_Type);
        let Some(new) = (*kind).tp_new.filter(|_| is_plain && is_taken(Shortcut::Calls)) else {
            return class.call(arguments, Some(keywords));
        };
        let object = Bound::from_owned_ptr_or_err(py, new(kind, arguments.as_ptr(), keywords.as_ptr()))?;
        if ffi::PyObject_TypeCheck(object.as_ptr(), kind) == 0 {
            return Ok(object);
        }
        match (*ffi::Py_TYPE(object.as_ptr())).tp_init {
            Some(init) if init(object.as_ptr(), arguments.as_ptr(), keywords.as_ptr()) != 0 => Err(PyErr::fetch(py)),
            _ => Ok(object),
        }
    }
}

/// Whether `object` is exactly the result of calling an `async def` function.
#[inline]
pub(crate) fn is_coroutine(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a type check of a live object.
    unsafe { std::ptr::eq(ffi::Py_TYPE(object.as_ptr()), &raw const ffi::PyCoro_Type) }
}
