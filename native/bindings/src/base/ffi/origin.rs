//! The origin of an allocation, found in the midst of it.

use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;

/// The interpreter of the caller: another one has objects of its own.
pub(crate) fn interpreter(_: Python<'_>) -> usize {
    // SAFETY: the caller is attached to one.
    unsafe { ffi::PyInterpreterState_Get() }.addr()
}

/// Whether an object is a variable of contexts.
pub(crate) fn is_context_variable(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is live.
    unsafe { ffi::PyContextVar_CheckExact(object.as_ptr()) != 0 }
}

/// The origin of an allocation: code and line of this thread's frames, innermost first, and the value of a context variable.
pub(crate) struct Origin<'py> {
    pub(crate) frames: Vec<(Bound<'py, PyAny>, i32)>,
    pub(crate) owner: Option<Bound<'py, PyAny>>,
}

/// Look at this thread in the midst of an allocation: runs no code of Python's and frees nothing. False in another
/// interpreter than this one, and where an exception is being handled in C, which must stay as it is.
pub(crate) fn with_origin(
    interpreter: usize,
    variable: *mut ffi::PyObject,
    most: usize,
    found: impl FnOnce(Origin<'_>),
) -> bool {
    // SAFETY: the function needs no interpreter.
    if unsafe { ffi::PyGILState_Check() } == 0 {
        return false; // code in C that breaks the rule
    }
    // SAFETY: the thread is attached, as was checked.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: as above.
    if self::interpreter(py) != interpreter || unsafe { !ffi::PyErr_Occurred().is_null() } {
        return false;
    }
    // Before 3.12 making the object of a frame might collect garbage, which runs code of Python's.
    #[cfg(not(Py_3_12))]
    // SAFETY: the thread is attached.
    let is_collecting = unsafe { ffi::PyGC_Disable() } != 0;
    let mut frames = Vec::with_capacity(most.min(64));
    // SAFETY: the thread is attached. Each call returns an object that is ours or null. A frame that runs is held by the
    // interpreter as well, so that releasing it frees nothing. If the allocation is that of such an object itself, the
    // interpreter may lose the one made here: some bytes, once in a very long while.
    unsafe {
        let mut frame = ffi::PyThreadState_GetFrame(ffi::PyThreadState_Get());
        while !frame.is_null() && frames.len() < most {
            let code = ffi::PyFrame_GetCode(frame);
            frames.push((Bound::from_owned_ptr(py, code.cast()), ffi::PyFrame_GetLineNumber(frame)));
            let back = ffi::PyFrame_GetBack(frame);
            ffi::Py_DECREF(frame.cast());
            frame = back;
        }
        ffi::Py_XDECREF(frame.cast());
    }
    let mut value = null_mut();
    // SAFETY: the thread is attached, and the variable is held by the sampler that runs; the value is ours.
    let owner = unsafe {
        match ffi::PyContextVar_Get(variable, null_mut(), &raw mut value) {
            0 => Bound::from_owned_ptr_or_opt(py, value),
            _ => None,
        }
    };
    #[cfg(not(Py_3_12))]
    if is_collecting {
        // SAFETY: the thread is attached.
        unsafe { ffi::PyGC_Enable() };
    }
    // SAFETY: as above; there was no exception before, so one is that of a frame for which there was no memory.
    unsafe { ffi::PyErr_Clear() };
    found(Origin { frames, owner: owner.filter(|owner| !owner.is_none()) });
    true
}
