//! Objects that are used again: one of a kind in a [`Single`], a few in a [`Several`] or a [`Stock`], each of one event
//! loop and so without a lock.
//!
//! The rule that makes it safe, for all of them:
//!
//! 1. Lending takes an object out of its place. While foreign code can run, the place is empty: a second use, inside the
//!    first, finds nothing and makes its own. Objects left behind by a panic are in no place either.
//! 2. At the return, identity and count decide: only the same object that was lent, without other holders, goes back,
//!    nested objects included. It is checked again when it is taken; its content can only be reached through it (the
//!    collector's lists of all objects apart).
//! 3. Nothing waits in its place with contents that a user could have reached: it is emptied when it comes back, not when it
//!    is taken.
//! 4. With `UVICORN_POISON=1` nothing goes back; what can be is overwritten, so that a use of it after its end is seen. Nor
//!    does it where `UVICORN_SHORTCUTS` leaves reuse out.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;

use super::ffi::refcount::is_known_to;

/// The fate of an object that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// It serves the next.
    On,
    Off,
    /// It is overwritten, where it can be.
    Poison,
}

/// Figures of a pool: `created`, `reused`, `discarded`, `idle`, `in_use`.
pub(crate) type Stats = [(&'static str, i64); 5];

/// The counters of a free list.
#[derive(Default)]
struct Figures {
    created: Cell<u64>,
    reused: Cell<u64>,
    discarded: Cell<u64>,
    in_use: Cell<i64>,
}

impl Figures {
    /// Count an object taken from the pool or created.
    #[inline]
    fn taken(&self, reused: bool) {
        let count = if reused { &self.reused } else { &self.created };
        count.set(count.get() + 1);
        self.in_use.set(self.in_use.get() + 1);
    }

    /// One came back, to be kept or not.
    #[inline]
    fn given(&self, kept: bool) {
        self.in_use.set(self.in_use.get() - 1);
        if !kept {
            self.discarded.set(self.discarded.get() + 1);
        }
    }

    fn stats(&self, idle: usize) -> Stats {
        [
            ("created", self.created.get().cast_signed()),
            ("reused", self.reused.get().cast_signed()),
            ("discarded", self.discarded.get().cast_signed()),
            ("idle", i64::try_from(idle).unwrap_or(i64::MAX)),
            ("in_use", self.in_use.get()),
        ]
    }
}

/// One thing, in its place or lent.
pub(crate) struct Single<T> {
    thing: Cell<Option<T>>,
    reuse: Reuse,
}

impl<T> Single<T> {
    /// None yet; none ever, if nothing is used again.
    pub(crate) fn new(reuse: Reuse) -> Self {
        Self { thing: Cell::new(None), reuse }
    }

    /// Whether a returned object is to be overwritten instead.
    #[inline]
    pub(crate) fn poisons(&self) -> bool {
        self.reuse == Reuse::Poison
    }

    /// Take it out, if it is there.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.thing.take()
    }

    /// Put it back. If another has come back meanwhile, that goes.
    #[inline]
    pub(crate) fn give(&self, thing: T) {
        if self.reuse == Reuse::On {
            let old = self.thing.replace(Some(thing));
            drop(old);
        }
    }
}

/// Objects of which mostly one is lent, and sometimes a few together.
pub(crate) struct Several<T> {
    one: Single<T>,
    others: RefCell<Vec<T>>,
    limit: usize,
}

impl<T> Several<T> {
    /// None yet, and `limit` at most; none ever, if nothing is used again.
    pub(crate) fn new(limit: usize, reuse: Reuse) -> Self {
        Self { one: Single::new(reuse), others: RefCell::default(), limit }
    }

    /// Whether a returned object is to be overwritten instead.
    #[inline]
    pub(crate) fn poisons(&self) -> bool {
        self.one.poisons()
    }

    /// Take one out, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.one.take().or_else(|| self.others.borrow_mut().pop())
    }

    /// Put one back.
    #[inline]
    pub(crate) fn give(&self, thing: T) {
        let other = self.one.take();
        self.one.give(thing);
        let Some(other) = other else { return };
        let mut others = self.others.borrow_mut();
        if others.len() + 1 < self.limit {
            others.push(other);
        } else {
            drop(others);
            drop(other);
        }
    }
}

/// A Python object that is over, without other holders: it serves as the next.
pub(crate) struct SpareObject(Single<Py<PyAny>>);

impl SpareObject {
    pub(crate) fn new(reuse: Reuse) -> Self {
        Self(Single::new(reuse))
    }

    /// The object, unless a program has kept it.
    #[inline]
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.0.take()?.into_bound(py);
        is_known_to(&object, 1).then_some(object)
    }

    /// `object` is over. The caller still holds it.
    #[inline]
    pub(crate) fn give(&self, object: &Bound<'_, PyAny>) {
        self.0.give(object.clone().unbind());
    }
}

/// A few things, and how often they were used again.
pub(crate) struct Stock<T> {
    idle: RefCell<Vec<T>>,
    limit: usize,
    figures: Figures,
    reuse: Reuse,
}

impl<T> Stock<T> {
    /// None yet, and `limit` at most; none ever, if nothing is used again.
    pub(crate) fn new(limit: usize, reuse: Reuse) -> Self {
        Self { idle: RefCell::default(), limit, figures: Figures::default(), reuse }
    }

    /// Take out one that still `is_fit`, if there is one; otherwise the caller makes one.
    #[inline]
    pub(crate) fn take(&self, is_fit: impl FnOnce(&T) -> bool) -> Option<T> {
        let idle = self.idle.borrow_mut().pop();
        let thing = idle.filter(is_fit);
        self.figures.taken(thing.is_some());
        thing
    }

    /// Put one back that `is_fit`, when it is emptied.
    #[inline]
    pub(crate) fn give(&self, mut thing: T, is_fit: bool, empty: impl FnOnce(&mut T)) {
        let kept = is_fit && self.reuse == Reuse::On && self.idle.borrow().len() < self.limit;
        self.figures.given(kept);
        if kept {
            empty(&mut thing);
            self.idle.borrow_mut().push(thing);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.figures.stats(self.idle.borrow().len())
    }
}
