//! The allocators of the interpreter's objects and buffers, with a function in front of each that counts bytes.
//!
//! Raw memory has none: it is allocated without the interpreter, and large objects get theirs by way of it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::base::allocations::{forget, note, restore, take};

type Malloc = extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Calloc = extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Realloc = extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
type Free = extern "C" fn(*mut c_void, *mut c_void);

/// An allocator of the interpreter's, or that of another tool.
#[derive(Clone, Copy)]
struct Allocator {
    ctx: *mut c_void,
    malloc: Malloc,
    calloc: Calloc,
    realloc: Realloc,
    free: Free,
}

/// The allocators behind ours; never freed, because a thread may be on its way through.
static OF_BUFFERS: AtomicPtr<Allocator> = AtomicPtr::new(null_mut());
static OF_OBJECTS: AtomicPtr<Allocator> = AtomicPtr::new(null_mut());

fn behind<const OBJECTS: bool>() -> &'static AtomicPtr<Allocator> {
    if OBJECTS { &OF_OBJECTS } else { &OF_BUFFERS }
}

fn domain<const OBJECTS: bool>() -> ffi::PyMemAllocatorDomain {
    if OBJECTS { ffi::PyMemAllocatorDomain::PYMEM_DOMAIN_OBJ } else { ffi::PyMemAllocatorDomain::PYMEM_DOMAIN_MEM }
}

#[inline]
fn next<const OBJECTS: bool>() -> Allocator {
    // SAFETY: our functions are installed, and so called, only after `put_in_front` has stored the address of an allocator
    // that is never freed.
    unsafe { *behind::<OBJECTS>().load(Ordering::Acquire) }
}

extern "C" fn malloc<const OBJECTS: bool>(_: *mut c_void, size: usize) -> *mut c_void {
    let next = next::<OBJECTS>();
    let block = (next.malloc)(next.ctx, size);
    note(block.addr(), size);
    block
}

extern "C" fn calloc<const OBJECTS: bool>(_: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let next = next::<OBJECTS>();
    let block = (next.calloc)(next.ctx, count, size);
    note(block.addr(), count.saturating_mul(size));
    block
}

extern "C" fn realloc<const OBJECTS: bool>(_: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    let next = next::<OBJECTS>();
    // Before the call, after which another thread may have the address.
    let record = take(block.addr());
    let moved = (next.realloc)(next.ctx, block, size);
    if !moved.is_null() {
        note(moved.addr(), size);
    } else if let Some(record) = record {
        restore(block.addr(), record);
    }
    moved
}

extern "C" fn free<const OBJECTS: bool>(_: *mut c_void, block: *mut c_void) {
    forget(block.addr());
    let next = next::<OBJECTS>();
    (next.free)(next.ctx, block);
}

fn get(domain: ffi::PyMemAllocatorDomain) -> ffi::PyMemAllocatorEx {
    let mut found = ffi::PyMemAllocatorEx { ctx: null_mut(), malloc: None, calloc: None, realloc: None, free: None };
    // SAFETY: the interpreter writes to an address of ours.
    unsafe { ffi::PyMem_GetAllocator(domain, &raw mut found) };
    found
}

fn is_ours(found: &ffi::PyMemAllocatorEx, malloc: Malloc) -> bool {
    found.malloc.is_some_and(|function| std::ptr::fn_addr_eq(function, malloc))
}

fn put<const OBJECTS: bool>() -> PyResult<()> {
    let mut found = get(domain::<OBJECTS>());
    if is_ours(&found, malloc::<OBJECTS>) {
        return Ok(());
    }
    let ffi::PyMemAllocatorEx {
        ctx,
        malloc: Some(first),
        calloc: Some(second),
        realloc: Some(third),
        free: Some(last),
    } = found
    else {
        return Err(PyRuntimeError::new_err("an allocator lacks a function"));
    };
    let next = Box::new(Allocator { ctx, malloc: first, calloc: second, realloc: third, free: last });
    behind::<OBJECTS>().store(Box::into_raw(next), Ordering::Release);
    found.malloc = Some(malloc::<OBJECTS>);
    found.calloc = Some(calloc::<OBJECTS>);
    found.realloc = Some(realloc::<OBJECTS>);
    found.free = Some(free::<OBJECTS>);
    // SAFETY: the functions pass every call on, so blocks are those of the allocator behind them, and any of them may
    // follow any of its functions. Other threads may read a part of the old struct and a part of the new one: the context
    // is the same in both, and ours do not use it.
    unsafe { ffi::PyMem_SetAllocator(domain::<OBJECTS>(), &raw mut found) };
    Ok(())
}

fn remove<const OBJECTS: bool>() {
    let mut found = get(domain::<OBJECTS>());
    // Otherwise another tool has come in front of ours, which remain, and pass calls on.
    if is_ours(&found, malloc::<OBJECTS>) {
        let next = next::<OBJECTS>();
        found.malloc = Some(next.malloc);
        found.calloc = Some(next.calloc);
        found.realloc = Some(next.realloc);
        found.free = Some(next.free);
        // SAFETY: as in `put`, the other way round.
        unsafe { ffi::PyMem_SetAllocator(domain::<OBJECTS>(), &raw mut found) };
    }
}

/// Put our functions in front of the interpreter's.
pub(crate) fn put_in_front(_: Python<'_>) -> PyResult<()> {
    put::<false>()?;
    put::<true>()?;
    reuse::follow();
    Ok(())
}

/// Take them away again.
pub(crate) fn take_away(_: Python<'_>) {
    reuse::unfollow();
    remove::<false>();
    remove::<true>();
}

/// The interpreter keeps some dead dicts, lists, floats, ... for the next object of their kind, without a call of the
/// allocator. From 3.13 on it says that an object begins.
#[cfg(all(Py_3_13, not(windows)))]
mod reuse {
    use std::ffi::{c_int, c_void};
    use std::ptr::null_mut;

    use pyo3::ffi::PyObject;

    use crate::base::allocations::begin_again;

    type Tracer = extern "C" fn(*mut PyObject, c_int, *mut c_void) -> c_int;

    const CREATED: c_int = 0;

    /// What precedes an object that the garbage collector knows.
    const COLLECTOR_HEAD: usize = if cfg!(Py_GIL_DISABLED) { 0 } else { 16 };

    unsafe extern "C" {
        fn PyRefTracer_SetTracer(tracer: Option<Tracer>, data: *mut c_void) -> c_int;
        fn PyRefTracer_GetTracer(data: *mut *mut c_void) -> Option<Tracer>;
    }

    extern "C" fn on_event(object: *mut PyObject, event: c_int, _: *mut c_void) -> c_int {
        if event == CREATED {
            begin_again(object.addr());
            begin_again(object.addr().wrapping_sub(COLLECTOR_HEAD));
        }
        0
    }

    /// The one that is set.
    fn tracer() -> Option<Tracer> {
        let mut data = null_mut();
        // SAFETY: the caller is attached to the interpreter, which writes to an address of ours.
        unsafe { PyRefTracer_GetTracer(&raw mut data) }
    }

    pub(super) fn follow() {
        if tracer().is_none() {
            // SAFETY: the caller is attached; the function may be called for any object, and touches none.
            unsafe { PyRefTracer_SetTracer(Some(on_event), null_mut()) };
        }
    }

    pub(super) fn unfollow() {
        if tracer().is_some_and(|tracer| std::ptr::fn_addr_eq(tracer, on_event as Tracer)) {
            // SAFETY: the caller is attached.
            unsafe { PyRefTracer_SetTracer(None, null_mut()) };
        }
    }
}

#[cfg(not(all(Py_3_13, not(windows))))]
mod reuse {
    pub(super) fn follow() {}
    pub(super) fn unfollow() {}
}

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

/// What runs in this thread: code and line of its frames, innermost first, and the value of a context variable.
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
