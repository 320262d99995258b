//! The access log that a server has, if it has one, and the entry of one request.

use pyo3::prelude::*;

use super::formatted::{self, FormattedLog};
use super::lines::{About, Lines};
use super::plain::PlainLog;

/// Where requests are logged.
pub(crate) enum AccessLog {
    Off,
    /// As upstream prints them: when the response starts.
    Plain(PlainLog),
    /// In a format of the user's.
    Formatted(FormattedLog),
}

/// The data gathered for the access log about one request and its response; a null pointer unless the format needs any.
pub(crate) struct Entry(Option<Box<formatted::Entry>>);

/// The head of a response, as far as it is logged.
#[derive(Default)]
pub(crate) struct Head {
    /// A line for each field behind a first one, if they are wanted.
    pub(crate) lines: Vec<u8>,
    /// The body of the application is dropped.
    pub(crate) bodiless: bool,
}

impl AccessLog {
    /// The log that `config` asks for.
    pub(crate) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(log) = PlainLog::new(config, event_loop)? {
            return Ok(Self::Plain(log));
        }
        Ok(FormattedLog::new(config, event_loop)?.map_or(Self::Off, Self::Formatted))
    }

    /// The lines that were collected, if there is a log.
    #[inline]
    pub(crate) fn lines(&self) -> Option<&Lines> {
        match self {
            Self::Off => None,
            Self::Plain(log) => Some(&log.lines),
            Self::Formatted(log) => Some(&log.lines),
        }
    }

    /// The `FormattedLog` of Python, if there is a format.
    pub(crate) fn formatted(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::Off | Self::Plain(_) => None,
            Self::Formatted(log) => Some(log.python()),
        }
    }

    /// A request has come.
    #[inline]
    pub(crate) fn begin(&self) -> Entry {
        Entry(matches!(self, Self::Formatted(_)).then(|| Box::new(formatted::Entry::new())))
    }

    /// Whether the lines of heads are wanted.
    pub(crate) fn wants_head(&self) -> bool {
        matches!(self, Self::Formatted(log) if log.wants_head())
    }

    /// The response starts, with the head that `head` gives.
    #[inline]
    pub(crate) fn start(
        &self,
        entry: &Entry,
        about: &About<'_, '_>,
        status: u16,
        head: impl FnOnce() -> Head,
    ) -> PyResult<()> {
        match (self, &entry.0) {
            (Self::Plain(log), _) => log.record(about, status),
            (Self::Formatted(log), Some(entry)) => {
                let Head { lines, bodiless } = head();
                log.start(entry, about, status, lines, bodiless);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The response is over; may be called repeatedly.
    pub(crate) fn end(&self, entry: &Entry, about: &About<'_, '_>) {
        if let (Self::Formatted(log), Some(entry)) = (self, &entry.0) {
            log.end(entry, about);
        }
    }
}

impl Entry {
    /// More of the body was sent.
    #[inline]
    pub(crate) fn count(&self, bytes: usize) {
        if let Some(entry) = &self.0 {
            entry.count(bytes);
        }
    }

    /// Whether the line is yet to be written when the response ends.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}
