//! The deadlines of a stream: for the rest of its request, and for the client to take more of its response.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

use crate::base::settings::Settings;
use crate::conn::deadline::{Deadline, Deadlines, Patient};

/// The rest of the request.
pub(crate) const REQUEST: u32 = 0;
/// The window for the response.
pub(crate) const WINDOW: u32 = 1;

/// Of so much that an application has not read, the client may be waiting to send more.
const UNREAD: usize = HIGH_WATER / 2;

/// They count while they are among those of the loop.
#[derive(Default)]
pub(crate) struct StreamDeadlines {
    request: Deadline,
    window: Deadline,
    /// The places of both among those of the loop.
    places: [Cell<Option<usize>>; 2],
}

impl StreamDeadlines {
    #[inline]
    pub(crate) fn of(&self, part: u32) -> &Deadline {
        if part == WINDOW { &self.window } else { &self.request }
    }

    /// Set a deadline, and have it count for the `owner`, unless that is gone.
    pub(crate) fn set<P: Patient + 'static>(
        &self,
        py: Python<'_>,
        all: &Rc<Deadlines>,
        part: u32,
        patience: Option<Duration>,
        owner: impl FnOnce() -> Option<Rc<P>>,
    ) -> PyResult<()> {
        self.of(part).set(patience.map(|patience| all.now() + patience));
        if patience.is_none() {
            return Ok(());
        }
        if let Some(place) = self.places.get(part as usize)
            && place.get().is_none()
        {
            let Some(owner) = owner() else { return Ok(()) };
            place.set(Some(all.insert(owner, part)));
        }
        all.watch(py, self.of(part))
    }

    /// Drop one.
    #[inline]
    pub(crate) fn leave(&self, all: &Deadlines, part: u32) {
        self.of(part).set(None);
        if let Some(place) = self.places.get(part as usize).and_then(Cell::take) {
            all.remove(place);
        }
    }

    /// Bytes of a body have come and extend its deadline. Unread bodies are never late.
    pub(crate) fn extend(&self, all: &Deadlines, settings: &Settings, bytes: usize, unread: usize) {
        if unread > UNREAD {
            self.request.set(None);
        } else if let Some(until) = self.request.get()
            && let Some(whole) = settings.timeout_request_body
        {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let later = until + Duration::from_secs(1) * bytes / settings.body_bytes_per_second;
            self.request.set(Some(later.min(all.now() + whole)));
        }
    }
}
