//! Python objects, looked at and made without detours.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyString};

/// An exact str for text that is known to be ASCII.
#[inline]
pub(crate) fn text<'py>(py: Python<'py>, ascii: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, std::str::from_utf8(ascii).unwrap_or_default())
}

/// Whether `left` and `right` are one object.
#[inline]
pub(crate) fn same<T>(left: &Bound<'_, PyAny>, right: &Py<T>) -> bool {
    left.as_ptr() == right.as_ptr()
}

/// A name that applications write as a constant of their own: equal to ours, but another object, and always the same one.
pub(crate) struct KnownText {
    name: Py<PyString>,
    last: RefCell<Option<Py<PyAny>>>,
}

impl KnownText {
    pub(crate) fn new(py: Python<'_>, text: &str) -> Self {
        Self { name: PyString::intern(py, text).unbind(), last: RefCell::new(None) }
    }

    /// Whether `value` is this text: the pointer settles it nearly always.
    #[inline]
    pub(crate) fn is(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if same(value, &self.name) || self.last.borrow().as_ref().is_some_and(|last| same(value, last)) {
            return Ok(true);
        }
        self.compare(value)
    }

    #[cold]
    fn compare(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let equal = value.eq(&self.name)?;
        // Of a subclass a request could hang anything on it.
        if equal && value.is_exact_instance_of::<PyString>() {
            // Held, so that its address cannot come to mean another object.
            let old = self.last.borrow_mut().replace(value.clone().unbind());
            drop(old);
        }
        Ok(equal)
    }
}

/// The slice `[start:stop]`. Not by `PySlice::new`, which in PyO3 0.30 never lets go of the numbers it makes.
pub(crate) fn slice(py: Python<'_>, start: usize, stop: usize) -> PyResult<Bound<'_, PyAny>> {
    py.get_type::<PySlice>().call1((start, stop))
}

/// Copy the present content of a bytes-like object, item by item if it has gaps. Also of an instance of a class derived
/// from `bytes`, whose methods may return anything.
#[cold]
pub(crate) fn copy_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyMemoryView::from(object)?.call_method0("tobytes")?.cast_into()?)
}
