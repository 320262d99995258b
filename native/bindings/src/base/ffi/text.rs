//! A `str` of ASCII that is created without checking its content again, and can be overwritten: the shortcut `texts`.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::refcount::is_held_by;
use crate::base::shortcuts::{Shortcut, is_taken};

/// A `str` of `text`, which is ASCII; other text takes the slow path.
#[inline]
pub(crate) fn ascii<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if !text.is_ascii() || !is_taken(Shortcut::Texts) {
        return Ok(PyString::new(py, &String::from_utf8_lossy(text)));
    }
    let size = ffi::Py_ssize_t::try_from(text.len())?;
    // SAFETY: asks for a new `str` of ASCII, which is ours, or null with an exception set. It has room for `size`
    // bytes, which are not read before they are written. Of length 0 it is a shared object, to which nothing is
    // written.
    unsafe {
        let object = Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_New(size, 0x7f))?;
        ptr::copy_nonoverlapping(text.as_ptr(), ffi::PyUnicode_1BYTE_DATA(object.as_ptr()), text.len());
        Ok(object.cast_into_unchecked())
    }
}

/// A `str` of ASCII that was created here, and can be overwritten while it has no other holder: then it is just the
/// memory that a new one would occupy.
pub(crate) struct OwnText(Py<PyString>);

impl OwnText {
    pub(crate) fn new(py: Python<'_>, text: &[u8]) -> PyResult<Self> {
        Ok(Self(ascii(py, text)?.unbind()))
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.0.bind(py).clone()
    }

    pub(crate) fn is(&self, object: &Py<PyAny>) -> bool {
        self.0.is(object)
    }

    /// Overwrite it with `text` if that is ASCII and of the same length, and if this object has `holders`, all of them
    /// the caller's, and was never looked up in a dict: so no dict has its hash, and it is not interned, which takes a
    /// hash.
    #[inline]
    pub(crate) fn rewrite(&self, py: Python<'_>, holders: isize, text: &[u8]) -> bool {
        let object = self.0.bind(py);
        // SAFETY: the object is a live `str`, made by `ascii`: one of ASCII, whose header before the text never
        // changes. It has room for as many bytes as it is long. With the GIL, and no holder but the caller, no other
        // code can read it meanwhile, and no reference to it, or to its bytes, outlives this.
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
