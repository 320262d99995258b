//! The access log of one event loop: the fast path of `uvicorn.access.AccessLog`, without Python objects.
//!
//! While logging is exactly as uvicorn set it up, which is checked for each record, the line is formatted here and all
//! lines of one turn of the loop are written at once. Otherwise the Python side gets the record and calls the logger.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::http::protocol::Connection;
use crate::server::{Core, Server, same};

const INFO: i64 = 20;

/// What uvicorn's own logging set-up looks like, and the lines it would have printed.
pub(crate) struct AccessLog {
    python: Py<PyAny>,
    logging: Py<PyAny>,
    logger: Py<PyAny>,
    default: Option<Default>,
    lines: RefCell<String>,
    scheduled: Cell<bool>,
}

/// The handler and the formatter of the default configuration, and what they print around a record.
struct Default {
    handler: Py<PyAny>,
    formatter: Py<PyAny>,
    colors: Py<PyAny>,
    record_class: Py<PyAny>,
    prefix: String,
    before_line: String,
    after_line: String,
    statuses: RefCell<HashMap<u16, String>>,
}

impl AccessLog {
    pub(crate) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = config.py();
        let module = py.import("uvicorn.access")?;
        let python = module.getattr("AccessLog")?.call_method1("from_config", (config, event_loop))?;
        let logging = py.import("logging")?;
        let handler = python.getattr("handler")?;
        let default = if handler.is_none() {
            None
        } else {
            let formatter = python.getattr("formatter")?;
            Some(Default {
                colors: formatter.getattr("use_colors")?.unbind(),
                formatter: formatter.unbind(),
                handler: handler.unbind(),
                record_class: logging.getattr("LogRecord")?.unbind(),
                prefix: python.getattr("prefix")?.extract()?,
                before_line: python.getattr("before_line")?.extract()?,
                after_line: python.getattr("after_line")?.extract()?,
                statuses: RefCell::default(),
            })
        };
        Ok(Self {
            logger: module.getattr("logger")?.unbind(),
            logging: logging.into_any().unbind(),
            python: python.unbind(),
            default,
            lines: RefCell::default(),
            scheduled: Cell::new(false),
        })
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
        match &self.default {
            Some(default) if self.is_untouched(py, core, default)? => {
                if !self.is_enabled(py, core)? {
                    return Ok(());
                }
                if !self.append(core, default, connection, scope, status)? {
                    return self.call_logger(py, core, scope, status);
                }
                if self.scheduled.replace(true) { Ok(()) } else { connection.flush_log_soon(py) }
            }
            _ => self.call_logger(py, core, scope, status),
        }
    }

    fn call_logger(&self, py: Python<'_>, core: &Core, scope: &Bound<'_, PyDict>, status: u16) -> PyResult<()> {
        self.flush(py)?;
        self.python.bind(py).call_method1(&core.names.record, (scope, status)).map(drop)
    }

    /// Whether logging is still exactly as it was at the start.
    #[inline]
    fn is_untouched(&self, py: Python<'_>, core: &Core, default: &Default) -> PyResult<bool> {
        let names = &core.names;
        let logger = self.logger.bind(py);
        let handler = default.handler.bind(py);
        let only = |list: &Bound<'_, PyAny>| match list.cast_exact::<PyList>() {
            Ok(list) => list.len() == 1 && list.get_item(0).is_ok_and(|first| same(&first, &default.handler)),
            Err(_) => false,
        };
        let empty = |list: &Bound<'_, PyAny>| list.cast_exact::<PyList>().is_ok_and(|list| list.is_empty());
        Ok(only(&logger.getattr(&names.handlers)?)
            && empty(&logger.getattr(&names.filters)?)
            && !logger.getattr(&names.propagate)?.is_truthy()?
            && empty(&handler.getattr(&names.filters)?)
            && same(&handler.getattr(&names.formatter)?, &default.formatter)
            && handler.getattr(&names.level)?.extract::<i64>()? <= INFO
            && same(&default.formatter.bind(py).getattr(&names.use_colors)?, &default.colors)
            && same(&self.logging.bind(py).getattr(&names.log_record_factory)?, &default.record_class))
    }

    #[inline]
    fn is_enabled(&self, py: Python<'_>, core: &Core) -> PyResult<bool> {
        self.logger.bind(py).call_method1(&core.names.is_enabled_for, (INFO,))?.is_truthy()
    }

    /// Format one line, as the default formatter does. `false`: the client is a text that the stream may be unable to
    /// encode, which must not cost the lines of others.
    fn append(
        &self,
        core: &Core,
        default: &Default,
        connection: &Connection,
        scope: &Bound<'_, PyDict>,
        status: u16,
    ) -> PyResult<bool> {
        let py = scope.py();
        let names = &core.names;
        if !default.statuses.borrow().contains_key(&status) {
            let text = default.formatter.bind(py).call_method1("get_status_code", (status,))?.extract()?;
            default.statuses.borrow_mut().insert(status, text);
        }
        let method = text_of(scope, &names.method)?;
        let path = text_of(scope, &names.path)?;
        let version = text_of(scope, &names.http_version)?;
        let query = scope.get_item(&names.query_string)?;
        let client = scope.get_item(&names.client)?;
        let mut lines = self.lines.borrow_mut();
        let start = lines.len();
        lines.push_str(&default.prefix);
        if let Some(client) = client {
            push_client(&mut lines, connection, &client)?;
        }
        if !lines.get(start..).is_some_and(str::is_ascii) {
            lines.truncate(start);
            return Ok(false);
        }
        lines.push_str(" - \"");
        lines.push_str(&default.before_line);
        lines.push_str(method.to_str()?);
        lines.push(' ');
        push_quoted(&mut lines, path.to_str()?);
        if let Some(query) = query
            && let Ok(query) = query.cast::<PyBytes>()
            && !query.as_bytes().is_empty()
        {
            lines.push('?');
            push_query(&mut lines, query.as_bytes());
        }
        lines.push_str(" HTTP/");
        lines.push_str(version.to_str()?);
        lines.push_str(&default.after_line);
        lines.push_str("\" ");
        lines.push_str(default.statuses.borrow().get(&status).map_or("", String::as_str));
        lines.push('\n');
        Ok(true)
    }

    /// Write the lines collected so far.
    pub(crate) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.scheduled.set(false);
        if self.lines.borrow().is_empty() {
            return Ok(());
        }
        let text = PyString::new(py, &self.lines.borrow());
        self.lines.borrow_mut().clear();
        self.python.bind(py).call_method1("write", (text,)).map(drop)
    }
}

fn text_of<'py>(scope: &Bound<'py, PyDict>, name: &Py<PyString>) -> PyResult<Bound<'py, PyString>> {
    match scope.get_item(name)? {
        Some(value) => Ok(value.cast_into::<PyString>()?),
        None => Ok(PyString::new(scope.py(), "")),
    }
}

/// `host:port`. The connection's own address, which is nearly always meant, was formatted when it was made.
fn push_client(lines: &mut String, connection: &Connection, client: &Bound<'_, PyAny>) -> PyResult<()> {
    if connection.push_client(lines, client) {
        return Ok(());
    }
    if let Ok(pair) = client.cast::<PyTuple>() {
        let _ = write!(lines, "{}:{}", pair.get_item(0)?.str()?.to_str()?, pair.get_item(1)?.str()?.to_str()?);
    }
    Ok(())
}

/// `urllib.parse.quote`: letters, digits and `_.-~/` stay, every other byte of the UTF-8 form becomes `%XX`.
fn push_quoted(lines: &mut String, path: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'~' | b'/');
    if path.bytes().all(stays) {
        lines.push_str(path);
        return;
    }
    for byte in path.bytes() {
        if stays(byte) {
            lines.push(char::from(byte));
        } else {
            lines.push('%');
            for digit in [byte >> 4, byte & 15] {
                lines.push(HEX.get(usize::from(digit)).copied().map_or('0', char::from));
            }
        }
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
    let py = server.py();
    let flush = server.getattr(&core.names.flush)?;
    core.event_loop.bind(py).call_method1(&core.names.call_soon, (flush,)).map(drop)
}
