//! A call in the main thread as soon as that runs bytecode again, requested without the interpreter.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// One call at a time is requested.
static IS_PENDING: AtomicBool = AtomicBool::new(false);

/// A function of Python's that is called without arguments. It is never released: the interpreter may call it later.
pub(crate) struct MainCall(*mut ffi::PyObject);

// SAFETY: the object is touched in the main thread alone, with the interpreter.
unsafe impl Send for MainCall {}
// SAFETY: as above.
unsafe impl Sync for MainCall {}

impl MainCall {
    pub(crate) fn new(function: Py<PyAny>) -> Self {
        Self(function.into_ptr())
    }

    /// Have the main thread call it, unless it is about to.
    pub(crate) fn request(&self) {
        if IS_PENDING.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: this needs no interpreter; the object is never released.
        if unsafe { ffi::Py_AddPendingCall(Some(call), self.0.cast()) } != 0 {
            IS_PENDING.store(false, Ordering::Relaxed);
        }
    }
}

extern "C" fn call(function: *mut c_void) -> c_int {
    IS_PENDING.store(false, Ordering::Relaxed);
    // SAFETY: the interpreter calls this with the GIL held; the object is the one above.
    let result = unsafe { ffi::PyObject_CallNoArgs(function.cast()) };
    if result.is_null() {
        return -1; // of a signal's handler, which has interrupted it: the interpreter raises it in the code that runs
    }
    // SAFETY: the result is a reference of ours.
    unsafe { ffi::Py_DECREF(result) };
    0
}
