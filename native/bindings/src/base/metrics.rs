//! The counters of this event loop: see `uvicorn/metrics/page.py` for their places and meaning.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use wire::method::Method;

use super::course::{Course, class_of, nanoseconds};
use super::ffi::words::Words;
use super::places;
use super::routes::Routes;

/// One event loop's page of numbers.
pub(crate) struct Metrics {
    words: Words,
    /// Counts by route, if that is wanted.
    pub(crate) routes: Option<Routes>,
}

impl Metrics {
    /// The numbers in `words`.
    pub(crate) fn new(words: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { words: Words::of(words)?, routes: None })
    }

    /// Those of a `ServerState`, if it counts.
    pub(crate) fn of_state(state: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(page) = state.getattr_opt("metrics")?.filter(|page| !page.is_none()) else { return Ok(None) };
        let metrics = Self::new(&page.getattr("words")?)?;
        Ok(Some(Self { routes: Routes::of_page(&page)?, ..metrics }))
    }

    /// Count.
    #[inline]
    pub(crate) fn add(&self, place: usize, number: usize) {
        self.words.add(place, number as u64);
    }

    #[inline]
    fn observe(&self, histogram: usize, time: u64) {
        let bucket = places::BOUNDS.iter().take_while(|bound| time > **bound).count();
        self.words.add(histogram + bucket, 1);
        self.words.add(histogram + places::BUCKETS, time);
    }

    /// The connection that is served next has waited so long.
    #[inline]
    pub(crate) fn note_wait(&self, time: Duration) {
        self.words.set(places::READ_DELAY, nanoseconds(time));
    }

    /// How long it has waited.
    #[inline]
    pub(crate) fn read_delay(&self) -> Duration {
        Duration::from_nanos(self.words.get(places::READ_DELAY))
    }

    /// A request begins, and its application is called at once.
    #[inline]
    pub(crate) fn begin(&self, method: Method, scope: &Bound<'_, PyDict>) -> Course {
        let queue_wait = self.words.get(places::READ_DELAY);
        self.words.add(places::BEGUN, 1);
        self.observe(places::QUEUE_WAIT, queue_wait);
        Course {
            since: Instant::now(),
            method,
            queue_wait,
            scope_size: if self.routes.is_some() { scope.len() } else { 0 },
            status: Cell::new(0),
            is_over: Cell::new(false),
            first: Cell::new(None),
            received: Cell::new(0),
            sent: Cell::new(0),
        }
    }

    /// It has ended; `is_complete`: with its whole response.
    #[inline]
    pub(crate) fn end(&self, course: &Course, scope: &Bound<'_, PyDict>, is_complete: bool) {
        self.words.add(places::ENDED, 1);
        self.count(course.method as usize, course.status.get());
        let duration = nanoseconds(course.since.elapsed());
        self.observe(places::DURATION, duration);
        if let Some(routes) = &self.routes {
            routes.end(&self.words, course, scope, duration, is_complete);
        }
    }

    /// The client's bytes were not a request, or not one that could be served.
    #[cold]
    pub(crate) fn refuse(&self, status: u16, method: Method) {
        self.count(method as usize, status);
        if let Some(routes) = &self.routes {
            routes.refuse(&self.words, method as usize, status);
        }
    }

    #[inline]
    fn count(&self, method: usize, status: u16) {
        self.words.add(places::REQUESTS + method * places::STATUS_CLASSES + class_of(status), 1);
    }
}
