//! The streams of a connection that are not over on the wire, and their requests whose applications have not started.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::starting::Asked;
use crate::asgi::exchange::Exchange;

/// Names a stream.
pub(crate) trait Id: Copy + PartialEq {
    /// The number of places that a connection without requests keeps.
    const KEPT: usize;

    /// A small number that no other stream of the connection has.
    fn place(self) -> usize;
    /// Rises from stream to stream.
    fn number(self) -> u64;
}

impl Id for wire::h2::StreamId {
    /// Room for more would be a kilobyte of an idle connection.
    const KEPT: usize = 8;

    #[inline]
    fn place(self) -> usize {
        self.place()
    }

    #[inline]
    fn number(self) -> u64 {
        self.number().into()
    }
}

impl Id for wire::h3::StreamId {
    /// A client with a few requests at a time is without any between two turns; beside the state of QUIC these places are few.
    const KEPT: usize = 32;

    #[inline]
    fn place(self) -> usize {
        self.place()
    }

    #[inline]
    fn number(self) -> u64 {
        self.number()
    }
}

/// A stream with its name.
pub(crate) trait Named {
    type Id: Id;

    fn id(&self) -> Self::Id;
}

/// A stream that is not over on the wire, with its exchange.
pub(crate) struct OpenStream<S> {
    pub(crate) stream: Rc<S>,
    /// None before its request has come, and if the server answers itself.
    pub(crate) exchange: Option<Rc<Exchange>>,
}

/// All of them.
pub(crate) struct OpenStreams<S: Named> {
    /// By their places.
    slots: Vec<Option<OpenStream<S>>>,
    asked: VecDeque<Asked<S::Id>>,
}

impl<S: Named> Default for OpenStreams<S> {
    fn default() -> Self {
        Self { slots: Vec::new(), asked: VecDeque::new() }
    }
}

impl<S: Named> OpenStreams<S> {
    #[inline]
    pub(crate) fn get(&self, id: S::Id) -> Option<&OpenStream<S>> {
        self.at(id.place()).filter(|open| open.stream.id() == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: S::Id) -> Option<&mut OpenStream<S>> {
        self.slots.get_mut(id.place())?.as_mut().filter(|open| open.stream.id() == id)
    }

    /// The stream with this place.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<&OpenStream<S>> {
        self.slots.get(place)?.as_ref()
    }

    /// The stream, if it is not over.
    #[inline]
    pub(crate) fn stream(&self, id: S::Id) -> Option<Rc<S>> {
        self.get(id).map(|open| open.stream.clone())
    }

    /// Its exchange, until the connection is done with it.
    #[inline]
    pub(crate) fn exchange(&self, id: S::Id) -> Option<Rc<Exchange>> {
        self.get(id)?.exchange.clone()
    }

    /// All streams, by their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<S>> {
        self.slots.iter().flatten().map(|open| &open.stream)
    }

    /// All exchanges that the connection is not done with.
    pub(crate) fn exchanges(&self) -> Vec<Rc<Exchange>> {
        self.slots.iter().flatten().filter_map(|open| open.exchange.clone()).collect()
    }

    /// The scope of the oldest request that is being answered.
    pub(crate) fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        let answered = self.slots.iter().flatten().filter_map(|open| Some((open.stream.id(), open.exchange.as_ref()?)));
        answered.min_by_key(|(id, _)| id.number()).map(|(_, exchange)| exchange.scope.clone_ref(py))
    }

    /// Have a stream found by its place.
    #[inline]
    pub(crate) fn keep(&mut self, open: OpenStream<S>) {
        let place = open.stream.id().place();
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        if let Some(old) = self.slots.get_mut(place) {
            *old = Some(open);
        }
    }

    /// Remove and return the record of a stream that is over.
    #[inline]
    pub(crate) fn take(&mut self, id: S::Id) -> Option<OpenStream<S>> {
        self.slots.get_mut(id.place())?.take_if(|open| open.stream.id() == id)
    }

    /// Take its exchange from a stream, which is over for the application; one that was not called yet never is. The request
    /// is for a caller who holds no borrow to drop.
    pub(crate) fn disown(&mut self, id: S::Id) -> (Option<Rc<Exchange>>, Option<Asked<S::Id>>) {
        let exchange = self.get_mut(id).and_then(|open| open.exchange.take());
        let place = self.asked.iter().position(|asked| asked.id == id);
        (exchange, place.and_then(|place| self.asked.remove(place)))
    }

    // Requests whose applications have not started.

    #[inline]
    pub(crate) fn ask(&mut self, asked: Asked<S::Id>) {
        self.asked.push_back(asked);
    }

    /// Take the request that has waited longest.
    #[inline]
    pub(crate) fn next_asked(&mut self) -> Option<Asked<S::Id>> {
        self.asked.pop_front()
    }

    pub(crate) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// No request is in progress: keep only as much room as a connection with a few requests at a time needs.
    pub(crate) fn shrink(&mut self) {
        if self.slots.capacity() > S::Id::KEPT && self.slots.iter().all(Option::is_none) {
            self.slots = Vec::new();
        }
        if self.asked.capacity() > S::Id::KEPT && self.asked.is_empty() {
            self.asked = VecDeque::new();
        }
    }
}

/// The same for a list of streams.
pub(crate) fn shrink<I: Id>(ids: &RefCell<Vec<I>>) {
    let mut ids = ids.borrow_mut();
    if ids.capacity() > I::KEPT && ids.is_empty() {
        *ids = Vec::new();
    }
}
