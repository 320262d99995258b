//! The counters of this event loop: see `uvicorn/metrics/page.py` for their places and meaning.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use wire::method::Method;

use super::ffi::words::Words;
use super::places;

/// One event loop's page of numbers.
pub(crate) struct Metrics {
    words: Words,
}

/// A request that is being answered.
#[derive(Clone, Copy)]
pub(crate) struct Course {
    since: Instant,
    method: Method,
    status: u16,
}

impl Course {
    /// Its response has begun.
    #[inline]
    pub(crate) fn respond(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Metrics {
    /// The numbers in `words`.
    pub(crate) fn new(words: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { words: Words::of(words)? })
    }

    /// Those of a `ServerState`, if it counts.
    pub(crate) fn of_state(state: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(page) = state.getattr_opt("metrics")?.filter(|page| !page.is_none()) else { return Ok(None) };
        Self::new(&page.getattr("words")?).map(Some)
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
    pub(crate) fn begin(&self, method: Method) -> Course {
        self.words.add(places::BEGUN, 1);
        self.observe(places::QUEUE_WAIT, self.words.get(places::READ_DELAY));
        Course { since: Instant::now(), method, status: 0 }
    }

    /// It has ended.
    #[inline]
    pub(crate) fn end(&self, course: Course) {
        self.words.add(places::ENDED, 1);
        self.count(course.method as usize, course.status);
        self.observe(places::DURATION, nanoseconds(course.since.elapsed()));
    }

    /// The client's bytes were not a request, or not one that could be served.
    #[cold]
    pub(crate) fn refuse(&self, status: u16) {
        self.count(places::OTHER_METHOD, status);
    }

    #[inline]
    fn count(&self, method: usize, status: u16) {
        let class = usize::from(status / 100).min(places::STATUS_CLASSES - 1);
        self.words.add(places::REQUESTS + method * places::STATUS_CLASSES + class, 1);
    }
}
