//! The number of an object's holders: the shortcut `reuse`.

use pyo3::ffi;
use pyo3::prelude::*;

/// Whether there are exactly `count` references to `object`: never on an interpreter that cannot tell.
#[inline]
pub(crate) fn is_held_by<T>(object: &Bound<'_, T>, count: isize) -> bool {
    // Without the GIL another thread may hold a reference that is not counted where we look; from 3.14 on the interpreter's
    // stack does.
    // SAFETY: the object is live and we hold the GIL, so the count is what it is.
    !cfg!(any(Py_GIL_DISABLED, Py_3_14)) && unsafe { ffi::Py_REFCNT(object.as_ptr()) } == count
}

/// Whether `object` has exactly `count` references, and no weak ones.
#[inline]
pub(crate) fn is_known_to<T>(object: &Bound<'_, T>, count: isize) -> bool {
    is_held_by(object, count) && !is_watched(object)
}

/// Whether there are weak references to `object`.
#[inline]
pub(crate) fn is_watched<T>(object: &Bound<'_, T>) -> bool {
    let object = object.as_ptr();
    // SAFETY: the object is live. The offset says where it keeps the list, null when empty: a positive one inside, from 3.12
    // on also a negative one, before its head. 0 says that it has none.
    unsafe {
        match (*ffi::Py_TYPE(object)).tp_weaklistoffset {
            0 => false,
            offset if offset > 0 || cfg!(Py_3_12) => {
                !object.byte_offset(offset).cast::<*mut ffi::PyObject>().read().is_null()
            }
            _ => true,
        }
    }
}
