//! The access log of one event loop: the fast path of `uvicorn.access.AccessLog`, without Python objects.
//!
//! While logging is exactly as uvicorn set it up, which is checked for each record, the line is formatted here and all
//! lines of one turn of the loop are written at once. Otherwise the Python side gets the record and calls the logger.
//!
//! A client that has one request at a time finds its line written when it has the response: the lines of a turn of ours
//! are written in front of its last response, and in other turns those that there are in front of the first.

mod escape;
pub(crate) mod format;
mod untouched;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyString};

use self::escape::push_path;
use self::untouched::{INFO, Untouched};
use crate::http::connection::Connection;
use crate::level::Level;
use crate::names::Names;
use crate::server::{Core, Server};

/// The lines of one turn of the loop.
pub(crate) struct Lines {
    /// A `LineBuffer`, which writes them.
    python: Py<PyAny>,
    level: Level,
    untouched: Option<Untouched>,
    text: RefCell<String>,
    /// What is left of them when the turn ends will be written then.
    scheduled: Cell<bool>,
    /// Some of them were written in front of a response.
    begun: Cell<bool>,
}

impl Lines {
    fn new(python: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            level: Level::new(&python.py().import("uvicorn.access")?.getattr("logger")?, INFO)?,
            untouched: Untouched::new(python)?,
            python: python.clone().unbind(),
            text: RefCell::default(),
            scheduled: Cell::new(false),
            begun: Cell::new(false),
        })
    }

    /// Whether lines are wanted at all.
    #[inline]
    fn are_wanted(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        self.level.is_enabled(py, names)
    }

    /// Whether they may be written past the logger, now.
    #[inline]
    fn may_write(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        self.untouched.as_ref().map_or(Ok(false), |untouched| untouched.holds(py, names))
    }

    fn push(&self, line: &str) {
        let mut text = self.text.borrow_mut();
        text.push_str(line);
        text.push('\n');
    }

    /// See to it that the lines are written when the loop gets to it.
    #[inline]
    fn schedule(&self, py: Python<'_>, connection: &Connection) -> PyResult<()> {
        if self.scheduled.replace(true) { Ok(()) } else { connection.flush_log_soon(py) }
    }

    /// The turn has ended.
    pub(crate) fn end_turn(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        self.scheduled.set(false);
        self.begun.set(false);
        self.flush(py, names)
    }

    /// A response is about to leave, in a turn of ours if that is known: whether it is the `last` one.
    #[inline]
    pub(crate) fn precede(&self, py: Python<'_>, names: &Names, last: impl FnOnce() -> Option<bool>) -> PyResult<()> {
        if !self.scheduled.get() || self.text.borrow().is_empty() {
            return Ok(());
        }
        let is_due = last().unwrap_or_else(|| !self.begun.replace(true));
        if is_due { self.flush(py, names) } else { Ok(()) }
    }

    /// Write the lines collected so far.
    pub(crate) fn flush(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        if self.text.borrow().is_empty() {
            return Ok(());
        }
        let text = PyString::new(py, &self.text.borrow());
        self.text.borrow_mut().clear();
        self.python.bind(py).call_method1(&names.write, (text,)).map(drop)
    }
}

/// Writes the lines that upstream prints.
pub(crate) struct AccessLog {
    pub(crate) lines: Lines,
    prefix: String,
    before_line: String,
    after_line: String,
    /// As the formatter writes them.
    statuses: RefCell<Vec<(u16, String)>>,
}

impl AccessLog {
    /// The log that `config` asks for, unless it has a format of its own.
    pub(crate) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let class = config.py().import("uvicorn.access")?.getattr("AccessLog")?;
        let python = class.call_method1("from_config", (config, event_loop))?;
        if python.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            lines: Lines::new(&python)?,
            prefix: python.getattr("prefix")?.extract()?,
            before_line: python.getattr("before_line")?.extract()?,
            after_line: python.getattr("after_line")?.extract()?,
            statuses: RefCell::default(),
        }))
    }

    /// Log one response.
    pub(crate) fn record(
        &self,
        py: Python<'_>,
        connection: &Connection,
        scope: &Bound<'_, PyDict>,
        status: u16,
    ) -> PyResult<()> {
        let core = &connection.core;
        if !self.lines.are_wanted(py, &core.names)? {
            return Ok(());
        }
        if self.lines.may_write(py, &core.names)? && self.append(core, connection, scope, status)? {
            return self.lines.schedule(py, connection);
        }
        self.lines.flush(py, &core.names)?;
        self.lines.python.bind(py).call_method1(&core.names.record, (scope, status)).map(drop)
    }

    /// Format one line, as the default formatter does. `false`: it is for Python to say, or the client is a text that the
    /// stream may be unable to encode, which must not cost the lines of others.
    fn append(&self, core: &Core, connection: &Connection, scope: &Bound<'_, PyDict>, status: u16) -> PyResult<bool> {
        let names = &core.names;
        self.learn_status(scope.py(), status)?;
        let (Some(method), Some(path)) = (text_of(scope, &names.method)?, text_of(scope, &names.path)?) else {
            return Ok(false);
        };
        let Some(version) = text_of(scope, &names.http_version)? else { return Ok(false) };
        let (Ok(method), Ok(path), Ok(version)) = (method.to_str(), path.to_str(), version.to_str()) else {
            return Ok(false);
        };
        let query = scope.get_item(&names.query_string)?;
        let client = scope.get_item(&names.client)?;
        let mut lines = self.lines.text.borrow_mut();
        let start = lines.len();
        lines.push_str(&self.prefix);
        if !client.is_some_and(|client| push_client(&mut lines, connection, &client)) {
            lines.truncate(start);
            return Ok(false);
        }
        lines.push_str(" - \"");
        lines.push_str(&self.before_line);
        lines.push_str(method);
        lines.push(' ');
        push_path(&mut lines, path);
        if let Some(query) = query
            && let Ok(query) = query.cast::<PyBytes>()
            && !query.as_bytes().is_empty()
        {
            lines.push('?');
            push_query(&mut lines, query.as_bytes());
        }
        lines.push_str(" HTTP/");
        lines.push_str(version);
        lines.push_str(&self.after_line);
        lines.push_str("\" ");
        if let Some((_, text)) = self.statuses.borrow().iter().find(|(known, _)| *known == status) {
            lines.push_str(text);
        }
        lines.push('\n');
        Ok(true)
    }

    /// Have the formatter write `status`, once.
    #[inline]
    fn learn_status(&self, py: Python<'_>, status: u16) -> PyResult<()> {
        if !self.statuses.borrow().iter().any(|(known, _)| *known == status)
            && let Some(untouched) = &self.lines.untouched
        {
            let text = untouched.formatter.bind(py).call_method1("get_status_code", (status,))?.extract()?;
            self.statuses.borrow_mut().push((status, text));
        }
        Ok(())
    }
}

#[inline]
fn text_of<'py>(scope: &Bound<'py, PyDict>, name: &Py<PyString>) -> PyResult<Option<Bound<'py, PyString>>> {
    Ok(scope.get_item(name)?.and_then(|value| value.cast_into::<PyString>().ok()))
}

/// `host:port`, and nothing if there is no client; `false` if it is something else, or not in ASCII. The connection's own
/// address, which is nearly always meant, was formatted when it was made.
fn push_client(lines: &mut String, connection: &Connection, client: &Bound<'_, PyAny>) -> bool {
    if client.is_none() || connection.push_client(lines, client) {
        return true;
    }
    match client.extract::<(PyBackedStr, u16)>() {
        Ok((host, port)) if host.is_ascii() => write!(lines, "{host}:{port}").is_ok(),
        _ => false,
    }
}

/// The query as it was sent; a quotation mark would end the quoted request line.
fn push_query(lines: &mut String, query: &[u8]) {
    for &byte in query {
        if byte == b'"' { lines.push_str("%22") } else { lines.push(char::from(byte)) }
    }
}

/// Writes the collected lines when the loop gets to it.
pub(crate) fn flush_soon(core: &Rc<Core>, server: &Bound<'_, Server>) -> PyResult<()> {
    if core.will_flush_log() {
        return Ok(());
    }
    let py = server.py();
    let flush = server.getattr(&core.names.flush)?;
    core.event_loop.bind(py).call_method1(&core.names.call_soon, (flush,)).map(drop)
}
