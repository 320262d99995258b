//! Where coroutines wait for the same thing, and go on in the order in which they came.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::names::Names;
use super::waiter::Waiter;

/// How many of a line go on in one turn of the event loop: enough to be quick, too few to hold up others.
pub(crate) const WOKEN_TOGETHER: usize = 16;

/// A line of coroutines, each with the future that wakes it. What one costs does not depend on how many have been in the
/// line; one that goes away, however it does, leaves nothing behind.
#[derive(Default)]
pub(crate) struct Line {
    /// None until a call has to wait.
    places: RefCell<Option<Box<Places>>>,
}

#[derive(Default)]
struct Places {
    last: u64,
    /// The first, with its ticket: mostly there is no other.
    first: Option<(u64, Py<PyAny>)>,
    /// Those behind it, by ticket.
    #[expect(
        clippy::box_collection,
        reason = "an idle connection has one that waits, and an empty map has three words"
    )]
    others: Option<Box<BTreeMap<u64, Py<PyAny>>>>,
}

impl Places {
    /// Put a future at its place; gives the one that it had before.
    fn put(&mut self, ticket: u64, future: Py<PyAny>) -> Option<Py<PyAny>> {
        match &mut self.first {
            None => {
                self.first = Some((ticket, future));
                None
            }
            Some((first, old)) if *first == ticket => Some(std::mem::replace(old, future)),
            Some(_) => self.others.get_or_insert_default().insert(ticket, future),
        }
    }

    fn remove(&mut self, ticket: u64) -> Option<Py<PyAny>> {
        match self.first.take_if(|(first, _)| *first == ticket) {
            Some((_, future)) => {
                self.first = self.others.as_mut().and_then(|others| others.pop_first());
                Some(future)
            }
            None => self.others.as_mut().and_then(|others| others.remove(&ticket)),
        }
    }

    fn futures(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.first.iter().map(|(_, future)| future).chain(self.others.iter().flat_map(|others| others.values()))
    }
}

impl Line {
    /// Whether no call waits: otherwise new ones must queue up too.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.borrow().as_ref().is_none_or(|places| places.first.is_none())
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.places.borrow().as_ref().map_or(0, |places| {
            usize::from(places.first.is_some()) + places.others.as_ref().map_or(0, |others| others.len())
        })
    }

    /// Take the last place; the ticket for it.
    pub(crate) fn join(&self, future: Py<PyAny>) -> u64 {
        let mut places = self.places.borrow_mut();
        let places = places.get_or_insert_default();
        places.last += 1;
        let ticket = places.last;
        let old = places.put(ticket, future);
        debug_assert!(old.is_none());
        ticket
    }

    /// Go on waiting, in the same place.
    pub(crate) fn wait_again(&self, ticket: u64, future: Py<PyAny>) {
        let old = self.places.borrow_mut().get_or_insert_default().put(ticket, future);
        drop(old);
    }

    pub(crate) fn leave(&self, ticket: u64) {
        let future = self.places.borrow_mut().as_mut().and_then(|places| places.remove(ticket));
        drop(future);
    }

    /// The first future.
    #[inline]
    pub(crate) fn first(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.places.borrow().as_ref()?.first.as_ref().map(|(_, future)| future.clone_ref(py))
    }

    /// The first `count` of them.
    fn firsts(&self, py: Python<'_>, count: usize) -> Vec<Py<PyAny>> {
        let places = self.places.borrow();
        let futures = places.iter().flat_map(|places| places.futures());
        futures.take(count).map(|future| future.clone_ref(py)).collect()
    }

    /// There is enough, perhaps for `count` of them: wake the first. The others follow when those have left the line.
    pub(crate) fn advance(&self, py: Python<'_>, names: &Names, count: usize) -> PyResult<()> {
        let Some(first) = self.first(py) else { return Ok(()) };
        if is_done(first.bind(py), names)? {
            // It was woken before, and is about to leave.
            return Ok(());
        }
        self.firsts(py, count).iter().try_for_each(|future| wake(future.bind(py), names))
    }

    // The garbage collector's side.

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(places) = self.places.try_borrow() else { return Ok(()) };
        places.iter().flat_map(|places| places.futures()).try_for_each(|future| visit.call(future))
    }

    pub(crate) fn clear(&self) {
        let places = self.places.take();
        drop(places);
    }
}

fn is_done(future: &Bound<'_, PyAny>, names: &Names) -> PyResult<bool> {
    if let Ok(waiter) = future.cast_exact::<Waiter>() {
        return waiter.get().is_done();
    }
    future.call_method0(&names.done)?.is_truthy()
}

/// Complete `future`, unless it is done.
pub(crate) fn wake(future: &Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
    if is_done(future, names)? {
        Ok(())
    } else {
        future.call_method1(&names.set_result, (future.py().None(),)).map(drop)
    }
}
