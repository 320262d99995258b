//! Counters by method and route: see `uvicorn/metrics/route_table.py` for the table in memory and its meaning.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::trace_context;

use super::course::{Course, class_of, nanoseconds};
use super::ffi::words::Words;

/// Two halves of the trace id, nanoseconds, nanoseconds since the epoch, seal.
const EXEMPLAR_WORDS: usize = 5;
/// Counted without a route: otherwise a client could claim a slot for each method of each route.
const METHOD_NOT_ALLOWED: u16 = 405;
/// Route objects that are remembered, by a part of their address: one place each, which the next one takes over.
const MEMORY: usize = 4096;

/// Where the table has its numbers: `Layout` of Python.
#[derive(FromPyObject)]
struct Layout {
    first: usize,
    size: usize,
    statuses: usize,
    received: usize,
    sent: usize,
    duration: usize,
    queue_wait: usize,
    first_byte: usize,
    exemplars: usize,
    buckets: usize,
}

/// A route object, which is held: its address cannot come to mean another one.
struct Known {
    object: Py<PyAny>,
    kind: usize,
    slot: usize,
}

/// The table of one event loop.
pub(crate) struct Routes {
    /// `RouteTable`
    table: Py<PyAny>,
    layout: Layout,
    /// In nanoseconds.
    bounds: Vec<u64>,
    known: RefCell<Vec<Option<Known>>>,
    /// Where frameworks leave their routes, in the order in which they are looked at.
    keys: [Py<PyString>; 3],
    headers: Py<PyString>,
    slot_of: Py<PyString>,
}

impl Routes {
    /// That of a page, if it has one.
    pub(super) fn of_page(page: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = page.py();
        let Some(table) = page.getattr_opt("routes")?.filter(|table| !table.is_none()) else { return Ok(None) };
        let intern = |text| PyString::intern(py, text).unbind();
        Ok(Some(Self {
            layout: table.getattr("layout")?.extract()?,
            bounds: table.getattr("bounds")?.extract()?,
            known: RefCell::new((0..MEMORY).map(|_| None).collect()),
            keys: ["route", "path_template", "endpoint"].map(intern),
            headers: intern("headers"),
            slot_of: intern("slot_of"),
            table: table.unbind(),
        }))
    }

    /// Count a request that has ended, after `duration` nanoseconds; `is_complete`: with its whole response.
    #[inline]
    pub(super) fn end(
        &self,
        words: &Words,
        course: &Course,
        scope: &Bound<'_, PyDict>,
        duration: u64,
        is_complete: bool,
    ) {
        let (layout, kind, status) = (&self.layout, course.method as usize, course.status.get());
        // Frameworks add to the scope what they have matched.
        let slot = if status == METHOD_NOT_ALLOWED || scope.len() <= course.scope_size {
            self.none(kind)
        } else {
            self.find(scope, kind)
        };
        words.add(slot + layout.statuses + class_of(status), 1);
        let received = course.received.get();
        if received > 0 {
            words.add(slot + layout.received, received as u64);
        }
        // RFC 9110 section 6.4.1: these responses have no body, whatever the application sends.
        if !(course.method == wire::method::Method::Head || status == 204 || status == 304) {
            words.add(slot + layout.sent, course.sent.get() as u64);
        }
        self.observe(words, slot + layout.queue_wait, course.queue_wait);
        if let Some(first) = course.first.get() {
            self.observe(words, slot + layout.first_byte, nanoseconds(first.saturating_duration_since(course.since)));
        } else if is_complete && status != 0 {
            self.observe(words, slot + layout.first_byte, duration);
        }
        let bucket = self.observe(words, slot + layout.duration, duration);
        if let Some((high, low)) = self.trace(scope) {
            exemplify(words, slot + layout.exemplars + EXEMPLAR_WORDS * bucket, (high, low), duration);
        }
    }

    /// Count invalid input.
    #[cold]
    pub(super) fn refuse(&self, words: &Words, method: usize, status: u16) {
        words.add(self.none(method) + self.layout.statuses + class_of(status), 1);
    }

    /// A WebSocket was accepted; returns what `close_session` needs.
    #[cold]
    pub(crate) fn open_session(&self, scope: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        self.table.bind(scope.py()).call_method1("open_session", (scope,)).map(Bound::unbind)
    }

    /// It has ended.
    #[cold]
    pub(crate) fn close_session(&self, py: Python<'_>, session: Py<PyAny>) -> PyResult<()> {
        self.table.bind(py).call_method1("close_session", (session,)).map(drop)
    }

    /// Where the slot of requests without a route begins.
    #[inline]
    fn none(&self, kind: usize) -> usize {
        self.layout.first + kind * self.layout.size
    }

    #[inline]
    fn observe(&self, words: &Words, histogram: usize, time: u64) -> usize {
        let bucket = self.bounds.iter().take_while(|bound| time > **bound).count();
        words.add(histogram + bucket, 1);
        words.add(histogram + self.layout.buckets, time);
        bucket
    }

    /// Where the slot of a request begins: by its route object, if that is known already.
    #[inline]
    fn find(&self, scope: &Bound<'_, PyDict>, kind: usize) -> usize {
        let py = scope.py();
        let found = self.keys.iter().find_map(|key| match scope.get_item(key) {
            Ok(Some(object)) if !object.is_none() => Some(object),
            _ => None,
        });
        let Some(object) = found else { return self.none(kind) };
        let at = ((object.as_ptr() as usize >> 4) ^ (kind << 8)) % MEMORY;
        if let Some(Some(known)) = self.known.borrow().get(at)
            && known.kind == kind
            && known.object.is(&object)
        {
            return known.slot;
        }
        self.ask(py, scope, object, kind, at)
    }

    /// Ask the table for it, which may run code of the framework.
    #[cold]
    fn ask(
        &self,
        py: Python<'_>,
        scope: &Bound<'_, PyDict>,
        object: Bound<'_, PyAny>,
        kind: usize,
        at: usize,
    ) -> usize {
        let told = self.table.bind(py).call_method1(&self.slot_of, (scope, kind));
        let Ok((slot, is_fixed)) = told.and_then(|told| told.extract::<(usize, bool)>()) else {
            return self.none(kind);
        };
        if is_fixed {
            let known = Some(Known { object: object.unbind(), kind, slot });
            let old = self.known.borrow_mut().get_mut(at).and_then(|place| std::mem::replace(place, known));
            // Behind the borrow: the end of an object may run code.
            drop(old);
        }
        slot
    }

    /// The trace id of a sampled request, in two halves.
    #[inline]
    fn trace(&self, scope: &Bound<'_, PyDict>) -> Option<(u64, u64)> {
        let headers = scope.get_item(&self.headers).ok()??;
        let headers = headers.cast_exact::<PyList>().ok()?;
        headers.iter().find_map(|pair| {
            let pair = pair.cast_exact::<PyTuple>().ok()?;
            let name = pair.get_borrowed_item(0).ok()?;
            let name = name.cast_exact::<PyBytes>().ok()?;
            if name.as_bytes() != b"traceparent" {
                return None;
            }
            sampled(pair.get_item(1).ok()?.cast_exact::<PyBytes>().ok()?.as_bytes())
        })
    }
}

/// Keep one request of a bucket. A reader recognizes by the seal that it is whole.
#[cold]
fn exemplify(words: &Words, place: usize, (high, low): (u64, u64), value: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds);
    let seal = high
        .wrapping_mul(3)
        .wrapping_add(low.wrapping_mul(5))
        .wrapping_add(value.wrapping_mul(7))
        .wrapping_add(now.wrapping_mul(11))
        .wrapping_add(13);
    for (offset, word) in [high, low, value, now, seal].into_iter().enumerate() {
        words.set(place + offset, word);
    }
}

/// The trace id in a `traceparent`, if the request is sampled.
fn sampled(traceparent: &[u8]) -> Option<(u64, u64)> {
    let parent = trace_context::parse(traceparent).filter(|parent| parent.flags & trace_context::SAMPLED != 0)?;
    let (high, low) = parent.trace.split_first_chunk()?;
    Some((u64::from_be_bytes(*high), u64::from_be_bytes(*low.first_chunk()?)))
}
