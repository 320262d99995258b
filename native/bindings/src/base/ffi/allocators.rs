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

const DOMAINS: [ffi::PyMemAllocatorDomain; 2] =
    [ffi::PyMemAllocatorDomain::PYMEM_DOMAIN_MEM, ffi::PyMemAllocatorDomain::PYMEM_DOMAIN_OBJ];

/// The allocator behind ours, by domain; never freed, because a thread may be on its way through.
static NEXT: [AtomicPtr<Allocator>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

#[inline]
fn next<const DOMAIN: usize>() -> Allocator {
    // SAFETY: our functions are installed, and so called, only after `put_in_front` has stored the address of an allocator
    // that is never freed.
    unsafe { *NEXT[DOMAIN].load(Ordering::Acquire) }
}

extern "C" fn malloc<const DOMAIN: usize>(_: *mut c_void, size: usize) -> *mut c_void {
    let next = next::<DOMAIN>();
    let block = (next.malloc)(next.ctx, size);
    note(block.addr(), size);
    block
}

extern "C" fn calloc<const DOMAIN: usize>(_: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let next = next::<DOMAIN>();
    let block = (next.calloc)(next.ctx, count, size);
    note(block.addr(), count.saturating_mul(size));
    block
}

extern "C" fn realloc<const DOMAIN: usize>(_: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    let next = next::<DOMAIN>();
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

extern "C" fn free<const DOMAIN: usize>(_: *mut c_void, block: *mut c_void) {
    forget(block.addr());
    let next = next::<DOMAIN>();
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

fn put<const DOMAIN: usize>() -> PyResult<()> {
    let mut found = get(DOMAINS[DOMAIN]);
    if is_ours(&found, malloc::<DOMAIN>) {
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
    NEXT[DOMAIN].store(Box::into_raw(next), Ordering::Release);
    found.malloc = Some(malloc::<DOMAIN>);
    found.calloc = Some(calloc::<DOMAIN>);
    found.realloc = Some(realloc::<DOMAIN>);
    found.free = Some(free::<DOMAIN>);
    // SAFETY: the functions pass every call on, so blocks are those of the allocator behind them, and any of them may
    // follow any of its functions. Other threads may read a part of the old struct and a part of the new one: the context
    // is the same in both, and ours do not use it.
    unsafe { ffi::PyMem_SetAllocator(DOMAINS[DOMAIN], &raw mut found) };
    Ok(())
}

fn remove<const DOMAIN: usize>() {
    let mut found = get(DOMAINS[DOMAIN]);
    // Otherwise another tool has come in front of ours, which remain, and pass calls on.
    if is_ours(&found, malloc::<DOMAIN>) {
        let next = next::<DOMAIN>();
        found.malloc = Some(next.malloc);
        found.calloc = Some(next.calloc);
        found.realloc = Some(next.realloc);
        found.free = Some(next.free);
        // SAFETY: as in `put`, the other way round.
        unsafe { ffi::PyMem_SetAllocator(DOMAINS[DOMAIN], &raw mut found) };
    }
}

/// Put our functions in front of the interpreter's.
pub(crate) fn put_in_front(_: Python<'_>) -> PyResult<()> {
    put::<0>()?;
    put::<1>()
}

/// Take them away again.
pub(crate) fn take_away(_: Python<'_>) {
    remove::<0>();
    remove::<1>();
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

/// Look at this thread in the midst of an allocation: runs no code of Python's and frees nothing. None in another
/// interpreter than this one, and where an exception is being handled in C, which must stay as it is.
pub(crate) fn with_origin(
    interpreter: usize,
    variable: *mut ffi::PyObject,
    most: usize,
    found: impl FnOnce(Origin<'_>),
) {
    // SAFETY: the function needs no interpreter.
    if unsafe { ffi::PyGILState_Check() } == 0 {
        return; // code in C that breaks the rule
    }
    // SAFETY: the thread is attached, as was checked.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: as above.
    if self::interpreter(py) != interpreter || unsafe { !ffi::PyErr_Occurred().is_null() } {
        return;
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
    if unsafe { !ffi::PyErr_Occurred().is_null() } {
        unsafe { ffi::PyErr_Clear() };
    }
    found(Origin { frames, owner: owner.filter(|owner| !owner.is_none()) });
}
