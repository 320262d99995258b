//! The only file that may say `unsafe`: calls of the C API that PyO3 does not wrap, and the one about descriptors.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(unix)]
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(Py_GIL_DISABLED)]
use std::thread::ThreadId;

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::awaitable::{Call, Callable, Function};
use crate::error::describe;
use crate::http::cycle::RequestResponseCycle;

/// What a coroutine did with its turn.
pub(crate) enum Turn {
    /// It waits for this.
    Yielded(Py<PyAny>),
    /// It returned this.
    Returned(Py<PyAny>),
}

/// Give `coroutine` its turn: `coroutine.send(None)` without the `StopIteration`.
#[inline]
pub(crate) fn step(coroutine: &Bound<'_, PyAny>) -> PyResult<Turn> {
    let py = coroutine.py();
    let mut result = std::ptr::null_mut();
    // SAFETY: `coroutine` and None are live objects and we hold the thread state (`py`). PyIter_Send stores one new
    // reference in `result` for NEXT and RETURN, and sets an exception for ERROR.
    unsafe {
        match ffi::PyIter_Send(coroutine.as_ptr(), ffi::Py_None(), &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => Ok(Turn::Yielded(Bound::from_owned_ptr(py, result).unbind())),
            ffi::PySendResult::PYGEN_RETURN => Ok(Turn::Returned(Bound::from_owned_ptr(py, result).unbind())),
            ffi::PySendResult::PYGEN_ERROR => Err(PyErr::fetch(py)),
        }
    }
}

/// A copy of a `contextvars.Context`.
#[inline]
pub(crate) fn copy_context<'py>(context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: PyContext_Copy checks the type itself and returns a new reference, or sets an exception and returns null.
    unsafe { Bound::from_owned_ptr_or_err(context.py(), ffi::PyContext_Copy(context.as_ptr())) }
}

/// `class(*arguments, **keywords)` without a copy of `keywords`, which a call would make.
#[inline]
pub(crate) fn instantiate<'py>(
    class: &Bound<'py, PyType>,
    arguments: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    // SAFETY: `class` is a live, ready type object, and what a call of it does is up to `type.__call__`, which this is:
    // `tp_new` gives a new reference or null with an exception set; if that object is one of the class, `tp_init` of its
    // own type fills it or sets an exception. Both only borrow their arguments, which live until the end of this function.
    unsafe {
        let kind = class.as_type_ptr();
        let is_plain = std::ptr::eq(ffi::Py_TYPE(class.as_ptr()), &raw const ffi::PyType_Type);
        let Some(new) = (*kind).tp_new.filter(|_| is_plain) else {
            return class.call(arguments, Some(keywords));
        };
        let object = Bound::from_owned_ptr_or_err(py, new(kind, arguments.as_ptr(), keywords.as_ptr()))?;
        if ffi::PyObject_TypeCheck(object.as_ptr(), kind) == 0 {
            return Ok(object);
        }
        match (*ffi::Py_TYPE(object.as_ptr())).tp_init {
            Some(init) if init(object.as_ptr(), arguments.as_ptr(), keywords.as_ptr()) != 0 => Err(PyErr::fetch(py)),
            _ => Ok(object),
        }
    }
}

/// A number that a class loses with its next change, and that no other class has; 0 if it has none now.
#[inline]
pub(crate) fn class_version(class: &Bound<'_, PyType>) -> u32 {
    // SAFETY: a live type object, of which one aligned field is read, as it is at this moment.
    unsafe { (&raw const (*class.as_type_ptr()).tp_version_tag).read_volatile() }
}

/// Whether there are exactly `count` references to `object`: never on an interpreter that cannot tell.
#[inline]
pub(crate) fn is_held_by<T>(object: &Bound<'_, T>, count: isize) -> bool {
    // Without the GIL another thread may hold a reference that is not counted where we look.
    // SAFETY: the object is live and we hold the GIL, so the count is what it is.
    !cfg!(Py_GIL_DISABLED) && unsafe { ffi::Py_REFCNT(object.as_ptr()) } == count
}

/// A number that no dict had before and that this one loses with its next change (PEP 509).
#[cfg(not(any(Py_3_14, Py_GIL_DISABLED)))]
#[inline]
#[expect(clippy::unnecessary_wraps, reason = "other versions have none")]
pub(crate) fn version(dict: &Bound<'_, PyDict>) -> Option<u64> {
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

/// Show `visit` the items of a dict, until it says that this is enough. It must not run any Python code: then nobody can
/// change the dict meanwhile, and its keys need no references of their own.
#[inline]
#[cfg(not(Py_GIL_DISABLED))]
pub(crate) fn each_item<'py>(
    dict: &Bound<'py, PyDict>,
    mut visit: impl FnMut(&Bound<'py, PyAny>, Bound<'py, PyAny>) -> bool,
) -> bool {
    let py = dict.py();
    let mut position = 0;
    let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: `dict` is a live dict, and we hold the thread state. PyDict_Next sets both to live objects of the dict's, or
    // returns 0. The value gets a reference of its own; the key is only lent, which `Borrowed` says.
    unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value) != 0 {
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
        // SAFETY: a live dict that nobody changes meanwhile, since no Python code runs here, and without the GIL the
        // caller holds the only reference. The pointers are borrowed and only compared.
        let more = unsafe { ffi::PyDict_Next(dict.as_ptr(), &raw mut at, &raw mut key, &raw mut value) };
        more != 0 && key == item.0.as_ptr() && value == item.1.as_ptr()
    })
}

/// Whether two lists hold the same objects.
#[inline]
pub(crate) fn are_equal(left: &Bound<'_, PyList>, right: &Bound<'_, PyList>) -> bool {
    // SAFETY: both are live lists that nobody changes meanwhile, since no Python code runs here and we hold the GIL, or,
    // without one, the only reference to the first and the second never changes. The pointers are only compared.
    left.len() == right.len()
        && (0..left.len().cast_signed())
            .all(|at| unsafe { ffi::PyList_GET_ITEM(left.as_ptr(), at) == ffi::PyList_GET_ITEM(right.as_ptr(), at) })
}

/// Whether nobody but the caller holds `cycle`, beside its two callables and the arguments of its task, which nobody but
/// the caller holds either.
#[inline]
pub(crate) fn is_forgotten(
    py: Python<'_>,
    cycle: &Py<RequestResponseCycle>,
    callables: [&Py<Callable>; 2],
    arguments: &Py<PyTuple>,
) -> bool {
    is_known_to(cycle.bind(py), 4)
        && is_held_by(arguments.bind(py), 1)
        && callables.into_iter().all(|callable| is_known_to(callable.bind(py), 1))
}

/// Whether just so many references to `object` exist, and no weak ones.
#[inline]
pub(crate) fn is_known_to<T>(object: &Bound<'_, T>, count: isize) -> bool {
    is_held_by(object, count) && !is_watched(object)
}

/// Whether there are weak references to `object`.
#[inline]
fn is_watched<T>(object: &Bound<'_, T>) -> bool {
    let object = object.as_ptr();
    // SAFETY: the object is live. A positive offset says where it keeps the list, null when empty; 0 that it has none.
    unsafe {
        match (*ffi::Py_TYPE(object)).tp_weaklistoffset {
            0 => false,
            offset @ 1.. => !object.byte_offset(offset).cast::<*mut ffi::PyObject>().read().is_null(),
            _ => true,
        }
    }
}

/// What the interpreter calls when a [`Callable`] is called. It finds this in the object, by its place.
pub(crate) struct Entry(#[expect(dead_code, reason = "the interpreter reads it")] ffi::vectorcallfunc);

impl Entry {
    pub(crate) const CALL: Self = Self(call_callable);
}

/// A call of `receive` or `send`.
unsafe extern "C" fn call_callable(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    flags: libc::size_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter for an object of the type that `install_slots` has prepared, so with a `Callable`
    // and a thread state; `arguments` has as many live objects as `flags` says. The caller holds the object meanwhile.
    unsafe {
        let py = Python::assume_attached();
        let object = ManuallyDrop::new(Bound::from_owned_ptr(py, callable).cast_into_unchecked::<Callable>());
        let ours = object.get();
        match (ours.function(), flags & !ffi::PY_VECTORCALL_ARGUMENTS_OFFSET) {
            (Function::Send, 1) if keywords.is_null() => make_call(ours.cycle(), *arguments),
            (Function::Receive, 0) if keywords.is_null() => make_call(ours.cycle(), std::ptr::null_mut()),
            (_, count) => call_with(callable, arguments, count, keywords),
        }
    }
}

/// A call with other arguments than usual.
///
/// # Safety
/// `callable` must be a live `Callable`, `keywords` null or a tuple, and `arguments` have `count` live objects and then one
/// for each of the keywords; the caller must hold a thread state.
#[cold]
#[inline(never)]
unsafe fn call_with(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the caller guarantees.
    unsafe {
        method(callable, |callable: &Bound<'_, Callable>| {
            let py = callable.py();
            let given = |range: std::ops::Range<usize>| {
                range.map(|at| Bound::from_borrowed_ptr(py, *arguments.add(at))).collect::<Vec<_>>()
            };
            let named = PyDict::new(py);
            if let Some(names) = Bound::from_borrowed_ptr_or_opt(py, keywords) {
                let names = names.cast_into::<PyTuple>()?;
                for (name, value) in names.iter().zip(given(count..count + names.len())) {
                    named.set_item(name, value)?;
                }
            }
            callable.get().call(py, &PyTuple::new(py, given(0..count))?, Some(&named))
        })
    }
}

/// A call of `send()`, or of `receive()` if there is no message.
///
/// # Safety
/// `message` must be null or a live object, and the caller must hold a thread state.
#[inline]
unsafe fn make_call(cycle: &Py<RequestResponseCycle>, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as the caller guarantees. Recycling neither panics nor runs Python code, so that it needs nothing around it.
    unsafe {
        let py = Python::assume_attached();
        let message = Bound::from_borrowed_ptr_or_opt(py, message);
        match Call::recycled(cycle.bind(py), message.as_ref()) {
            Some(call) => call.into_ptr(),
            None => method(cycle.as_ptr(), |cycle| Call::make(cycle, message.as_ref())),
        }
    }
}

/// The body of a C function whose first argument is a `T`: exceptions and panics become Python exceptions.
///
/// # Safety
/// `object` must be a live `T`, and the caller must hold a thread state.
#[inline]
unsafe fn method<T: PyTypeInfo>(
    object: *mut ffi::PyObject,
    body: impl FnOnce(&Bound<'_, T>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: the type is what the caller guarantees.
        let object = unsafe { Bound::from_borrowed_ptr(py, object).cast_into_unchecked::<T>() };
        // Panics that cost the connection its life are caught further in; left is a call from another thread.
        let result = catch_unwind(AssertUnwindSafe(|| body(&object)))
            .unwrap_or_else(|payload| Err(PyRuntimeError::new_err(describe(&*payload))));
        match result {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    })
}

/// Put our own functions into the slots of `Call`, `RequestResponseCycle` and `Callable` that every request goes through:
/// they do without the argument handling of PyO3's, which stay behind the methods of the same names.
pub(crate) fn install_slots(py: Python<'_>) -> PyResult<()> {
    install_entry(&Bound::new(py, Callable::new(&Bound::new(py, RequestResponseCycle::new())?, Function::Send))?);
    let call = py.get_type::<Call>();
    let cycle = py.get_type::<RequestResponseCycle>();
    // SAFETY: both are heap types that are ready and that no other thread knows yet, since their module is just being
    // made; heap types own their `tp_as_async`. The functions have the signatures of their slots.
    unsafe {
        let kind = call.as_type_ptr();
        (*kind).tp_iternext = Some(call_next);
        (*(*kind).tp_as_async).am_await = Some(call_await);
        (*(*kind).tp_as_async).am_send = Some(call_send);
        let kind = cycle.as_type_ptr();
        (*(*kind).tp_as_async).am_send = Some(cycle_send);
        ffi::PyType_Modified(call.as_type_ptr());
        ffi::PyType_Modified(cycle.as_type_ptr());
    }
    Ok(())
}

/// Have objects of the class of `callable` called by their [`Entry`], as functions are.
fn install_entry(callable: &Bound<'_, Callable>) {
    let kind = callable.get_type().as_type_ptr();
    let entry: *const Entry = callable.get().entry();
    // SAFETY: the field is inside of the object, at the same place in each, since they have one layout. The type is ready,
    // and no other thread knows it yet, since its module is just being made.
    unsafe {
        (*kind).tp_vectorcall_offset = entry.byte_offset_from(callable.as_ptr());
        #[cfg(not(Py_GIL_DISABLED))]
        let () = (*kind).tp_flags |= ffi::Py_TPFLAGS_HAVE_VECTORCALL;
        #[cfg(Py_GIL_DISABLED)]
        (*kind).tp_flags.fetch_or(ffi::Py_TPFLAGS_HAVE_VECTORCALL, std::sync::atomic::Ordering::Relaxed);
        ffi::PyType_Modified(kind);
    }
}

/// `__await__` of a call.
unsafe extern "C" fn call_await(call: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter through the slot of the type, so with a call and a thread state.
    unsafe {
        let py = Python::assume_attached();
        let ours = Bound::from_borrowed_ptr(py, call).cast_into_unchecked::<Call>();
        match ours.get().is_awaited() {
            Ok(false) => ours.into_ptr(),
            _ => method(call, |call: &Bound<'_, Call>| {
                call.get().check_awaited().map(|()| call.clone().into_any().unbind())
            }),
        }
    }
}

/// `__next__` of a call: null without an exception is the end of one that returns None.
unsafe extern "C" fn call_next(call: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut result = std::ptr::null_mut();
    // SAFETY: called by the interpreter through the slot of the type, so with a call and a thread state. `result` is a
    // new reference or null; one that is not handed on is given back, or kept by the exception.
    unsafe {
        match call_send(call, std::ptr::null_mut(), &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => return result,
            ffi::PySendResult::PYGEN_RETURN if result != ffi::Py_None() => {
                ffi::PyErr_SetObject(ffi::PyExc_StopIteration, result);
            }
            ffi::PySendResult::PYGEN_RETURN | ffi::PySendResult::PYGEN_ERROR => {}
        }
        ffi::Py_XDECREF(result);
    }
    std::ptr::null_mut()
}

/// A turn of a call.
unsafe extern "C" fn call_send(
    call: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    let mut over = false;
    // SAFETY: as in `cycle_send`.
    unsafe {
        *result = method(call, |call| match Call::turn(call)? {
            Turn::Yielded(future) => Ok(future),
            Turn::Returned(value) => {
                over = true;
                Ok(value)
            }
        });
        sent(*result, over)
    }
}

/// What a turn that gave `result` means.
#[inline]
fn sent(result: *mut ffi::PyObject, over: bool) -> ffi::PySendResult {
    match result.is_null() {
        true => ffi::PySendResult::PYGEN_ERROR,
        false if over => ffi::PySendResult::PYGEN_RETURN,
        false => ffi::PySendResult::PYGEN_NEXT,
    }
}

/// A turn of the task's coroutine.
unsafe extern "C" fn cycle_send(
    cycle: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    let mut over = false;
    // SAFETY: called by the interpreter through the slot of the type, so with a cycle and a thread state; `result` is
    // where the new reference goes, null with an exception set.
    unsafe {
        *result = method(cycle, |cycle: &Bound<'_, RequestResponseCycle>| {
            let turn = cycle.get().guarded(cycle.py(), |exchange| cycle.get().turn(cycle.py(), exchange))?;
            over = turn.is_none();
            Ok(turn.unwrap_or_else(|| cycle.py().None()))
        });
        sent(*result, over)
    }
}

/// Take over a descriptor that Python has given away with `socket.detach()`.
#[cfg(target_os = "linux")]
pub(crate) fn own_descriptor(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: a query of one number; one that is not open is an error, not more.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is open, and its owner has promised not to use it any more: that is what the argument means.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Another descriptor for what `descriptor` stands for, not inherited by programs that are started.
#[cfg(unix)]
pub(crate) fn duplicate(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: a number goes in; the kernel says so if it is no descriptor.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// How many bytes of a socket's have not reached its peer; 0 where the kernel does not tell. Only sockets of ours ask.
#[cfg(target_os = "linux")]
pub(crate) fn in_kernel(socket: BorrowedFd<'_>) -> usize {
    let mut size: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and this request stores one int at the address, which is ours.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut size) } == 0;
    if told { usize::try_from(size).unwrap_or_default() } else { 0 }
}

/// Send a signal to this process; nothing comes of a number that is none.
#[cfg(unix)]
pub(crate) fn signal_self(signal: i32) {
    // SAFETY: neither call touches memory.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Whether `object` is exactly what a call of an `async def` function gives.
#[inline]
pub(crate) fn is_coroutine(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a type check of a live object.
    unsafe { std::ptr::eq(ffi::Py_TYPE(object.as_ptr()), &raw const ffi::PyCoro_Type) }
}

/// State that belongs to the thread of one event loop, inside an object that Python could hand to any thread.
///
/// On an interpreter with a GIL whoever gets here holds it, and no borrow of what is inside is held across a call into
/// Python: two threads can never be in it at once. Without a GIL the thread itself is checked, and any other panics,
/// which its caller sees as an exception. What another thread's garbage collector finds there waits for the owner to
/// [`bury`] it, and is not freed, ever, if that thread has ended.
pub(crate) struct ThreadBound<T: 'static> {
    value: ManuallyDrop<T>,
    #[cfg(Py_GIL_DISABLED)]
    owner: ThreadId,
}

// SAFETY: see above; all access, the end included, needs the GIL or the owner thread, or is the collector's.
unsafe impl<T> Send for ThreadBound<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for ThreadBound<T> {}

impl<T> ThreadBound<T> {
    /// `value` belongs to the current thread.
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            #[cfg(Py_GIL_DISABLED)]
            owner: orphans::here(),
        }
    }

    /// `value` belongs to the thread that this belongs to, whichever is the current one: it must be fit for any thread
    /// until it gets there.
    #[cfg_attr(not(Py_GIL_DISABLED), expect(clippy::unused_self, reason = "without a GIL it has an owner"))]
    pub(crate) fn beside<U>(&self, value: U) -> ThreadBound<U> {
        ThreadBound {
            value: ManuallyDrop::new(value),
            #[cfg(Py_GIL_DISABLED)]
            owner: self.owner,
        }
    }

    /// Whether it may be used by whoever asks.
    #[inline]
    #[cfg_attr(not(Py_GIL_DISABLED), expect(clippy::unused_self, reason = "without a GIL it has an owner"))]
    fn is_here(&self) -> bool {
        #[cfg(Py_GIL_DISABLED)]
        return orphans::here() == self.owner;
        #[cfg(not(Py_GIL_DISABLED))]
        true
    }

    /// The state, unless it belongs to another thread.
    pub(crate) fn if_here(&self) -> Option<&T> {
        self.is_here().then_some(&*self.value)
    }

    /// The state, or the exception for whoever asks in another thread.
    #[inline]
    pub(crate) fn here(&self) -> PyResult<&T> {
        self.if_here().ok_or_else(elsewhere)
    }

    /// For `__traverse__` only. Without a GIL the collector stops all other threads meanwhile, each of them inside the
    /// interpreter, so outside of any borrow or in one that `try_borrow` sees.
    pub(crate) fn for_collector(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for ThreadBound<T> {
    fn drop(&mut self) {
        #[cfg(Py_GIL_DISABLED)]
        if !self.is_here() {
            if std::mem::needs_drop::<T>() {
                // SAFETY: this is the end of it: nobody looks at the value again. It is moved, not looked at.
                orphans::leave(self.owner, unsafe { ManuallyDrop::take(&mut self.value) });
            }
            return;
        }
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.value) }
    }
}

impl<T: Default> Default for ThreadBound<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for ThreadBound<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        assert!(self.is_here(), "{ELSEWHERE}");
        &self.value
    }
}

const ELSEWHERE: &str = "used outside the thread of its event loop";

#[cold]
fn elsewhere() -> PyErr {
    PyRuntimeError::new_err(ELSEWHERE)
}

/// Free what the collectors of other threads found of this thread's. Runs Python code: hold no borrow.
#[inline]
pub(crate) fn bury() {
    #[cfg(Py_GIL_DISABLED)]
    orphans::bury();
}

/// State of running threads that lost its object in another thread.
#[cfg(Py_GIL_DISABLED)]
mod orphans {
    use std::any::Any;
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
    use std::thread::{ThreadId, current};

    struct Orphan(#[expect(dead_code, reason = "kept to be dropped")] Box<dyn Any>);

    // SAFETY: made in one thread, where nothing looks inside, and dropped in the one that the contents belong to.
    unsafe impl Send for Orphan {}

    /// All of them; an entry for each thread that has state and runs.
    static ALL: LazyLock<Mutex<HashMap<ThreadId, Vec<Orphan>>>> = LazyLock::new(Mutex::default);
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    fn all() -> MutexGuard<'static, HashMap<ThreadId, Vec<Orphan>>> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that has state.
    struct Resident(ThreadId);

    thread_local! {
        static RESIDENT: Resident = {
            let id = current().id();
            all().insert(id, Vec::new());
            Resident(id)
        };
    }

    impl Drop for Resident {
        fn drop(&mut self) {
            let left = all().remove(&self.0).unwrap_or_default();
            COUNT.fetch_sub(left.len(), Ordering::Relaxed);
            // No Python thread any more.
            left.into_iter().for_each(std::mem::forget);
        }
    }

    /// This thread.
    #[inline]
    pub(super) fn here() -> ThreadId {
        RESIDENT.try_with(|resident| resident.0).unwrap_or_else(|_| current().id())
    }

    /// Leave `value` to the thread that it belongs to.
    #[cold]
    pub(super) fn leave<T: 'static>(owner: ThreadId, value: T) {
        let orphan = Orphan(Box::new(value));
        match all().get_mut(&owner) {
            Some(orphans) => {
                orphans.push(orphan);
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
            None => std::mem::forget(orphan),
        }
    }

    #[inline]
    pub(super) fn bury() {
        if COUNT.load(Ordering::Relaxed) != 0 {
            bury_some();
        }
    }

    #[cold]
    fn bury_some() {
        let mine = all().get_mut(&here()).map(std::mem::take).unwrap_or_default();
        COUNT.fetch_sub(mine.len(), Ordering::Relaxed);
        drop(mine);
    }
}
