//! The allocators of the interpreter's objects and buffers, with a function in front of each that counts bytes.
//!
//! Raw memory has none: it is allocated without the interpreter, and large objects get theirs by way of it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::base::samples::{forget, note, restore, take};

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

    use crate::base::samples::begin_again;

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
