//! The access log that upstream prints: the fast path of `uvicorn.access.log.AccessLog`.

use std::cell::RefCell;
use std::fmt::Write as _;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::escape::push_path;
use super::lines::{About, Lines};
use crate::asgi::peer::Peer;
use crate::base::names::Names;

/// Writes the lines that upstream prints.
pub(crate) struct PlainLog {
    pub(super) lines: Lines,
    prefix: String,
    before_line: String,
    after_line: String,
    /// As the formatter writes them.
    statuses: RefCell<Vec<(u16, String)>>,
}

impl PlainLog {
    /// The log that `config` asks for, unless it has a format of its own.
    pub(super) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let class = config.py().import("uvicorn.access.log")?.getattr("AccessLog")?;
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
    pub(super) fn record(&self, about: &About<'_, '_>, status: u16) -> PyResult<()> {
        let About { names, peer, scope, later } = about;
        let py = scope.py();
        if !self.lines.are_wanted(py, names)? {
            return Ok(());
        }
        if self.lines.may_write(py, names)? && self.append(names, peer, scope, status)? {
            return self.lines.schedule(later);
        }
        self.lines.flush(py, names)?;
        self.lines.python.bind(py).call_method1(&names.record, (*scope, status)).map(drop)
    }

    /// Format one line, as the default formatter does. `false`: it is for Python to say, or the client is a text that
    /// the stream may be unable to encode, which must not cost the lines of others.
    fn append(&self, names: &Names, peer: &Peer, scope: &Bound<'_, PyDict>, status: u16) -> PyResult<bool> {
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
        if !client.is_some_and(|client| push_client(&mut lines, peer, &client)) {
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

/// `host:port`, and nothing if there is no client; `false` if it is something else, or not in ASCII. The connection's
/// own address, which is nearly always meant, was formatted when it was made.
fn push_client(lines: &mut String, peer: &Peer, client: &Bound<'_, PyAny>) -> bool {
    if client.is_none() || peer.push_client(lines, client) {
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
