//! Whether dicts, lists and classes are what they were, and what a dict holds, without a reference for each: the shortcuts
//! `versions`, `classes` and `walks`.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use crate::base::shortcuts::{Shortcut, is_taken};

/// A number that a class loses with its next change, and that no other class has; 0 if it has none now.
#[inline]
pub(crate) fn class_version(class: &Bound<'_, PyType>) -> u32 {
    if !is_taken(Shortcut::Classes) {
        return 0;
    }
    // SAFETY: a live type object, of which one aligned field is read, as it is at this moment.
    unsafe { (&raw const (*class.as_type_ptr()).tp_version_tag).read_volatile() }
}

/// A number that no dict had before and that this one loses with its next change (PEP 509).
#[cfg(not(any(Py_3_14, Py_GIL_DISABLED)))]
#[inline]
pub(crate) fn version(dict: &Bound<'_, PyDict>) -> Option<u64> {
    if !is_taken(Shortcut::Versions) {
        return None;
    }
    // SAFETY: a live dict, of which one field is read.
    #[allow(deprecated, reason = "in 3.14 it is gone, in those before it works as ever")]
    Some(unsafe { (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_version_tag })
}

/// There is no such number any more.
#[cfg(any(Py_3_14, Py_GIL_DISABLED))]
#[inline]
pub(crate) fn version(_dict: &Bound<'_, PyDict>) -> Option<u64> {
    None
}

/// Show `visit` the items of a dict, until it returns that this is enough. It must not run any Python code: then the
/// dict cannot change meanwhile, and its keys need no references of their own.
#[inline]
#[cfg(not(Py_GIL_DISABLED))]
pub(crate) fn each_item<'py>(
    dict: &Bound<'py, PyDict>,
    mut visit: impl FnMut(&Bound<'py, PyAny>, Bound<'py, PyAny>) -> bool,
) -> bool {
    let py = dict.py();
    if !is_taken(Shortcut::Walks) {
        return dict.iter().all(|(key, value)| visit(&key, value));
    }
    let mut position = 0;
    let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
    // Asking for the end would cost as much as another item.
    let mut left = dict.len();
    // SAFETY: `dict` is a live dict, and we hold the thread state. PyDict_Next sets both to live objects of the dict's, or
    // returns 0. The value gets a reference of its own; the key is only lent, which `Borrowed` says.
    unsafe {
        while left > 0 && ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value) != 0 {
            left -= 1;
            if !visit(&Borrowed::from_ptr(py, key), Bound::from_borrowed_ptr(py, value)) {
                return false;
            }
        }
    }
    true
}

/// The same where other threads may change the dict at any time.
#[cfg(Py_GIL_DISABLED)]
pub(crate) fn each_item<'py>(
    dict: &Bound<'py, PyDict>,
    mut visit: impl FnMut(&Bound<'py, PyAny>, Bound<'py, PyAny>) -> bool,
) -> bool {
    dict.iter().all(|(key, value)| visit(&key, value))
}

/// Whether `dict` still is what it was when it had this version and held just these objects, in this order.
#[inline]
pub(crate) fn is_unchanged(dict: &Bound<'_, PyDict>, version: Option<u64>, items: &[(Py<PyAny>, Py<PyAny>)]) -> bool {
    if version.is_some() {
        return self::version(dict) == version;
    }
    if dict.len() != items.len() {
        return false;
    }
    let mut at = 0;
    let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
    items.iter().all(|item| {
        // SAFETY: a live dict that does not change meanwhile, since no Python code runs here, and without the GIL the
        // caller holds the only reference. The pointers are borrowed and only compared.
        let more = unsafe { ffi::PyDict_Next(dict.as_ptr(), &raw mut at, &raw mut key, &raw mut value) };
        more != 0 && key == item.0.as_ptr() && value == item.1.as_ptr()
    })
}

/// Whether two lists hold the same objects.
#[inline]
pub(crate) fn are_equal(left: &Bound<'_, PyList>, right: &Bound<'_, PyList>) -> bool {
    // SAFETY: both are live lists that do not change meanwhile, since no Python code runs here and we hold the GIL, or,
    // without one, the only reference to the first and the second never changes. The pointers are only compared.
    left.len() == right.len()
        && (0..left.len().cast_signed())
            .all(|at| unsafe { ffi::PyList_GET_ITEM(left.as_ptr(), at) == ffi::PyList_GET_ITEM(right.as_ptr(), at) })
}
