//! A `str` of ASCII, made without a look at what it is made of, and written anew: the shortcut `texts`.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::refcount::is_held_by;
use crate::base::shortcuts::{Shortcut, is_taken};

/// A `str` of `text`, which is ASCII; what is not comes the long way.
#[inline]
pub(crate) fn ascii<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if !text.is_ascii() || !is_taken(Shortcut::Texts) {
        return Ok(PyString::new(py, &String::from_utf8_lossy(text)));
    }
    let size = ffi::Py_ssize_t::try_from(text.len())?;
    // SAFETY: a new `str` of ASCII is asked for, which is ours, or null with an exception set. It has room for `size` bytes, which
    // nobody looks at before they are written. Of a length of 0 it is a shared object, to which nothing is written.
    unsafe {
        let object = Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_New(size, 0x7f))?;
        ptr::copy_nonoverlapping(text.as_ptr(), ffi::PyUnicode_1BYTE_DATA(object.as_ptr()), text.len());
        Ok(object.cast_into_unchecked())
    }
}

/// A `str` of ASCII that was made here, and that can be written anew while nobody else knows it: then it is no more than the
/// memory that a new one would be given.
pub(crate) struct OwnText(Py<PyString>);

impl OwnText {
    pub(crate) fn new(py: Python<'_>, text: &[u8]) -> PyResult<Self> {
        Ok(Self(ascii(py, text)?.unbind()))
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.0.bind(py).clone()
    }

    pub(crate) fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        self.0.is(object)
    }

    /// Put `text` in its place if it is ASCII and as long as what stands there, and if there are `holders` of this object, all
    /// of them of the caller, and nobody has ever looked it up in a dict: so nobody knows it by its hash, and it is not
    /// interned, which takes a hash.
    #[inline]
    pub(crate) fn rewrite(&self, py: Python<'_>, holders: isize, text: &[u8]) -> bool {
        let object = self.0.bind(py);
        // SAFETY: the object is a live `str`, made by `ascii`: one of ASCII without a byte in front of its text, which never
        // changes. It has room for as many bytes as it is long. With the GIL, and no holder but the caller, nobody can look at
        // it meanwhile, and nobody has a reference to it, or to its bytes, that outlives this.
        unsafe {
            let is_alike = ffi::PyUnicode_GET_LENGTH(object.as_ptr()).cast_unsigned() == text.len();
            let is_hashed = (*object.as_ptr().cast::<ffi::PyASCIIObject>()).hash != -1;
            if !is_alike || is_hashed || !is_held_by(object, holders) || !text.is_ascii() || text.is_empty() {
                return false;
            }
            ptr::copy_nonoverlapping(text.as_ptr(), ffi::PyUnicode_1BYTE_DATA(object.as_ptr()), text.len());
        }
        true
    }
}
