//! State that only one thread may touch.

use std::mem::ManuallyDrop;
use std::ops::Deref;
#[cfg(Py_GIL_DISABLED)]
use std::thread::ThreadId;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// State that belongs to the thread of one event loop, inside an object that Python could hand to any thread.
///
/// On an interpreter with a GIL the caller holds it, and no borrow of the state is held across a call into Python: two
/// threads can never be in it at once. Without a GIL the thread itself is checked, and any other panics, which its
/// caller sees as an exception. What another thread's garbage collector finds there waits for the owner to [`bury`] it,
/// and is not freed, ever, if that thread has ended.
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

    /// Whether the calling thread may use it.
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

    /// The state, or an exception for a caller in another thread.
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
                // SAFETY: this is the end of it: the value is not used again. It is moved, not read.
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

/// Free objects of this thread that collectors of other threads found. Runs Python code: hold no borrow.
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
            // No longer a thread of Python's.
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
