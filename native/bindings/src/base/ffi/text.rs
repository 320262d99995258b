//! A `str` of ASCII, made without a look at what it is made of.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A `str` of `text`, which is ASCII; what is not comes the long way.
#[inline]
pub(crate) fn ascii<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if !text.is_ascii() {
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
