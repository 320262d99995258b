//! The access log in a format of the user's: the fast path of `uvicorn.access.log.FormattedLog`.
//!
//! The format was compiled in Python (`uvicorn/access/format.py`), which also says what each atom means. Here are the
//! atoms again, without Python objects. A request that has something rare (credentials, a scope that an application has
//! changed beyond recognition) is left to Python.

use std::cell::{Cell, RefCell};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::escape::{push_json, push_path, push_text, push_word};
use super::lines::{About, Lines};
use crate::asgi::identity::is_request_id;
use crate::base::names::Names;

/// A piece of a line.
enum Part {
    Literal(String),
    Text(Atom),
    Json(Atom),
}

enum Atom {
    Host,
    Port,
    User,
    Date,
    IsoTime,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Version,
    Scheme,
    Status,
    Bytes,
    BytesIfAny,
    Seconds,
    Millis,
    Micros,
    DecimalSeconds,
    RequestHeader(Vec<u8>),
    ResponseHeader(Vec<u8>),
    RequestId,
}

impl Atom {
    fn new(name: &str, argument: &str) -> PyResult<Self> {
        Ok(match name {
            "h" => Self::Host,
            "port" => Self::Port,
            "u" => Self::User,
            "t" => Self::Date,
            "time" => Self::IsoTime,
            "r" => Self::RequestLine,
            "m" => Self::Method,
            "U" => Self::Path,
            "q" => Self::Query,
            "H" => Self::Protocol,
            "version" => Self::Version,
            "scheme" => Self::Scheme,
            "s" => Self::Status,
            "B" => Self::Bytes,
            "b" => Self::BytesIfAny,
            "T" => Self::Seconds,
            "M" => Self::Millis,
            "D" => Self::Micros,
            "L" => Self::DecimalSeconds,
            "i" => Self::RequestHeader(argument.as_bytes().to_vec()),
            "o" => Self::ResponseHeader(argument.as_bytes().to_vec()),
            "request_id" => Self::RequestId,
            _ => return Err(PyValueError::new_err(format!("unknown atom {name}"))),
        })
    }

    /// Whether its value is a number, which JSON writes without quotation marks.
    fn is_number(&self) -> bool {
        matches!(self, Self::Port | Self::Status | Self::Bytes | Self::DecimalSeconds)
    }
}

fn parts_of(list: &Bound<'_, PyAny>) -> PyResult<Vec<Part>> {
    let mut parts = Vec::new();
    for part in list.try_iter()? {
        let (kind, name, argument): (String, String, String) = part?.extract()?;
        parts.push(match kind.as_str() {
            "literal" => Part::Literal(name),
            "text" => Part::Text(Atom::new(&name, &argument)?),
            _ => Part::Json(Atom::new(&name, &argument)?),
        });
    }
    Ok(parts)
}

/// The data gathered about one response. Its line is written once: at the start if the format needs no more, else at
/// the end, whether or not the response is complete. A response that never started has no line.
pub(crate) struct Entry {
    began: Instant,
    /// Since 1970.
    millis: u64,
    /// 0 before the response.
    status: Cell<u16>,
    /// Bytes of the body given to the transport.
    sent: Cell<u64>,
    /// The body of the application is dropped.
    bodiless: Cell<bool>,
    /// Of the response, if the format asks for its fields.
    head: RefCell<Vec<u8>>,
    /// The number of the request id that was made, if one was.
    id: Cell<Option<u64>>,
    reported: Cell<bool>,
}

impl Entry {
    /// A request has come.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began: Instant::now(),
            millis: u64::try_from(now.as_millis()).unwrap_or_default(),
            status: Cell::new(0),
            sent: Cell::new(0),
            bodiless: Cell::new(false),
            head: RefCell::default(),
            id: Cell::new(None),
            reported: Cell::new(false),
        }
    }

    /// More of the body was sent.
    pub(super) fn count(&self, bytes: usize) {
        if !self.bodiless.get() {
            self.sent.set(self.sent.get() + bytes as u64);
        }
    }
}

/// The last second that was shown, as the Python side writes it.
#[derive(Default)]
struct Stamps {
    second: Option<u64>,
    date: String,
    iso: String,
}

/// The ids of requests: those of their scopes; requests without one are numbered behind the prefix.
struct Ids {
    are_in_scopes: bool,
    prefix: String,
    count: Cell<u64>,
}

/// A format and its lines.
pub(crate) struct FormattedLog {
    pub(super) lines: Lines,
    parts: Vec<Part>,
    /// A line has to wait until the response is complete.
    at_end: bool,
    /// All lines are ASCII, which any stream can encode.
    is_ascii: bool,
    wants_head: bool,
    facts: Py<PyAny>,
    stamps_of: Py<PyAny>,
    stamps: RefCell<Stamps>,
    /// Where a line is put together: no borrow is held meanwhile.
    scratch: Cell<String>,
    ids: Ids,
}

impl FormattedLog {
    /// The log that `config` asks for, if it has a format.
    pub(super) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = config.py();
        let class = py.import("uvicorn.access.log")?.getattr("FormattedLog")?;
        let python = class.call_method1("from_config", (config, event_loop))?;
        if python.is_none() {
            return Ok(None);
        }
        let module = py.import("uvicorn.access.format")?;
        let format = python.getattr("format")?;
        let parts = parts_of(&format.getattr("parts")?)?;
        let of_head = |part: &Part| matches!(part, Part::Text(Atom::ResponseHeader(_)));
        Ok(Some(Self {
            wants_head: parts.iter().any(of_head),
            parts,
            at_end: format.getattr("at_end")?.extract()?,
            is_ascii: format.getattr("is_ascii")?.extract()?,
            facts: module.getattr("Facts")?.unbind(),
            stamps_of: module.getattr("stamps")?.unbind(),
            stamps: RefCell::default(),
            scratch: Cell::default(),
            ids: Ids {
                are_in_scopes: config.getattr("request_id")?.is_truthy()?,
                prefix: py.import("secrets")?.call_method1("token_hex", (8,))?.extract()?,
                count: Cell::new(0),
            },
            lines: Lines::new(&python)?,
        }))
    }

    /// The `FormattedLog` of Python.
    pub(super) fn python(&self) -> &Py<PyAny> {
        &self.lines.python
    }

    /// Whether the format asks for fields of the response.
    pub(super) fn wants_head(&self) -> bool {
        self.wants_head
    }

    /// The response of `entry` starts: with `head`, and without a body if it is `bodiless`.
    pub(super) fn start(&self, entry: &Entry, about: &About<'_, '_>, status: u16, head: Vec<u8>, bodiless: bool) {
        entry.status.set(status);
        entry.bodiless.set(bodiless);
        entry.head.replace(head);
        if !self.at_end {
            self.end(entry, about);
        }
    }

    /// Log the response, once. A failure costs the line, but never the response.
    pub(super) fn end(&self, entry: &Entry, about: &About<'_, '_>) {
        let py = about.scope.py();
        if entry.status.get() == 0 || entry.reported.replace(true) {
            return;
        }
        if let Err(error) = self.write(py, entry, about)
            && let Err(error) = self.lines.python.bind(py).call_method1("failed", (error.into_value(py),))
        {
            error.write_unraisable(py, None);
        }
    }

    fn write(&self, py: Python<'_>, entry: &Entry, about: &About<'_, '_>) -> PyResult<()> {
        let About { names, scope, later, .. } = about;
        if !self.lines.are_wanted(py, names)? {
            return Ok(());
        }
        let micros = if self.at_end { entry.began.elapsed().as_micros() } else { 0 };
        if !self.is_ascii || !self.lines.may_write(py, names)? {
            self.lines.flush(py, names)?;
            let facts = self.facts_of(scope, entry, micros)?;
            return self.lines.python.bind(py).call_method1("report", (facts,)).map(drop);
        }
        let mut line = self.scratch.take();
        let request = Request { names, scope, entry, micros };
        if matches!(self.render(&mut line, &request), Ok(Value::There)) {
            self.lines.push(&line);
        } else {
            let facts = self.facts_of(scope, entry, micros)?;
            let rendered = self.lines.python.bind(py).getattr("format")?.call_method1("render", (facts,))?;
            self.lines.push(rendered.cast::<PyString>()?.to_str()?);
        }
        line.clear();
        self.scratch.set(line);
        self.lines.schedule(later)
    }

    /// A `Facts` of Python.
    fn facts_of<'py>(&self, scope: &Bound<'py, PyDict>, entry: &Entry, micros: u128) -> PyResult<Bound<'py, PyAny>> {
        let py = scope.py();
        let head = PyBytes::new(py, &entry.head.borrow());
        let arguments = (scope, entry.millis, entry.status.get(), head, entry.sent.get(), micros as u64);
        self.facts.bind(py).call1(arguments)
    }

    /// Format one line.
    fn render(&self, line: &mut String, request: &Request<'_, '_>) -> PyResult<Value> {
        for part in &self.parts {
            let begin = line.len();
            let (outcome, missing) = match part {
                Part::Literal(text) => {
                    line.push_str(text);
                    continue;
                }
                Part::Text(atom) => (self.push(line, request, atom, Shape::Text)?, "-"),
                Part::Json(atom) if atom.is_number() => (self.push(line, request, atom, Shape::Text)?, "null"),
                Part::Json(atom) => {
                    line.push('"');
                    let outcome = self.push(line, request, atom, Shape::Json)?;
                    line.push('"');
                    (outcome, "null")
                }
            };
            match outcome {
                Value::There => {}
                Value::Missing => {
                    line.truncate(begin);
                    line.push_str(missing);
                }
                Value::Rare => return Ok(Value::Rare),
            }
        }
        Ok(Value::There)
    }

    /// Append the value of `atom`.
    fn push(&self, line: &mut String, request: &Request<'_, '_>, atom: &Atom, shape: Shape) -> PyResult<Value> {
        let Request { names, entry, micros, .. } = request;
        let py = request.scope.py();
        match atom {
            Atom::Host => return request.push_host(line, shape),
            Atom::Port => return request.push_port(line),
            Atom::User => return request.push_user(),
            Atom::RequestLine => return request.push_request_line(line, shape),
            Atom::Query => return request.push_query(line, shape, ""),
            Atom::RequestHeader(name) => return request.push_header(line, name, shape),
            Atom::ResponseHeader(name) => return Ok(push_response_header(line, &entry.head.borrow(), name, shape)),
            Atom::RequestId => return self.push_request_id(line, request, shape),
            Atom::BytesIfAny if entry.sent.get() == 0 => return Ok(Value::Missing),
            Atom::Date => self.push_date(line, py, entry.millis)?,
            Atom::IsoTime => self.push_iso_time(line, py, entry.millis)?,
            Atom::Method => request.push_text(line, &names.method, shape)?,
            Atom::Path => request.push_path(line)?,
            Atom::Protocol => {
                line.push_str("HTTP/");
                request.push_text(line, &names.http_version, shape)?;
            }
            Atom::Version => request.push_text(line, &names.http_version, shape)?,
            Atom::Scheme => request.push_text(line, &names.scheme, shape)?,
            Atom::Status => line.push_str(itoa::Buffer::new().format(entry.status.get())),
            Atom::Bytes | Atom::BytesIfAny => line.push_str(itoa::Buffer::new().format(entry.sent.get())),
            Atom::Seconds => line.push_str(itoa::Buffer::new().format(micros / 1_000_000)),
            Atom::Millis => line.push_str(itoa::Buffer::new().format(micros / 1000)),
            Atom::Micros => line.push_str(itoa::Buffer::new().format(*micros)),
            Atom::DecimalSeconds => {
                line.push_str(itoa::Buffer::new().format(micros / 1_000_000));
                line.push('.');
                push_padded(line, micros % 1_000_000, 6);
            }
        }
        Ok(Value::There)
    }

    fn push_date(&self, line: &mut String, py: Python<'_>, millis: u64) -> PyResult<()> {
        self.show(py, millis / 1000)?;
        line.push_str(&self.stamps.borrow().date);
        Ok(())
    }

    fn push_iso_time(&self, line: &mut String, py: Python<'_>, millis: u64) -> PyResult<()> {
        self.show(py, millis / 1000)?;
        line.push_str(&self.stamps.borrow().iso);
        line.push('.');
        push_padded(line, millis % 1000, 3);
        line.push('Z');
        Ok(())
    }

    /// Bring the stamps to `second`.
    fn show(&self, py: Python<'_>, second: u64) -> PyResult<()> {
        if self.stamps.borrow().second != Some(second) {
            let (date, iso) = self.stamps_of.bind(py).call1((second,))?.extract()?;
            *self.stamps.borrow_mut() = Stamps { second: Some(second), date, iso };
        }
        Ok(())
    }

    /// The id in the scope, if there is one; else the client's X-Request-ID if it is valid, or one that is made now.
    fn push_request_id(&self, line: &mut String, request: &Request<'_, '_>, shape: Shape) -> PyResult<Value> {
        if self.ids.are_in_scopes
            && let Some(id) = request.scope.get_item(&request.names.request_id)?
            && let Ok(id) = id.cast_exact::<PyString>()
        {
            push_bytes(line, id.to_str()?.as_bytes(), shape);
            return Ok(Value::There);
        }
        let Some(values) = request.headers(b"x-request-id")? else { return Ok(Value::Rare) };
        let sent = match values.as_slice() {
            [value] if is_request_id(value.as_bytes()) => std::str::from_utf8(value.as_bytes()).ok(),
            _ => None,
        };
        if let Some(sent) = sent {
            line.push_str(sent);
        } else {
            let number = request.entry.id.get().unwrap_or_else(|| {
                self.ids.count.set(self.ids.count.get() + 1);
                self.ids.count.get()
            });
            request.entry.id.set(Some(number));
            line.push_str(&self.ids.prefix);
            push_hex(line, number);
        }
        Ok(Value::There)
    }
}

/// Append a number with zeros in front, up to `width`. Much faster than the standard library's formatting.
fn push_padded(line: &mut String, number: impl itoa::Integer, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number);
    for _ in digits.len()..width {
        line.push('0');
    }
    line.push_str(digits);
}

/// Append 16 hexadecimal digits.
fn push_hex(line: &mut String, number: u64) {
    for shift in (0..16).rev() {
        let digit = (number >> (4 * shift)) & 15;
        line.push(char::from_digit(digit as u32, 16).unwrap_or('0'));
    }
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Json,
}

/// Whether an atom has a value.
enum Value {
    There,
    Missing,
    /// It is for Python to say.
    Rare,
}

fn push_bytes(line: &mut String, bytes: &[u8], shape: Shape) {
    match shape {
        Shape::Text => push_text(line, bytes),
        Shape::Json => push_json(line, bytes),
    }
}

/// The fields called `name` of an encoded head, joined.
fn push_response_header(line: &mut String, head: &[u8], name: &[u8], shape: Shape) -> Value {
    let mut found = Value::Missing;
    for field in head.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = field.iter().position(|&byte| byte == b':') else { continue };
        let (key, value) = field.split_at(colon);
        if !key.eq_ignore_ascii_case(name) {
            continue;
        }
        if matches!(found, Value::There) {
            line.push_str(", ");
        }
        push_bytes(line, value.get(1..).unwrap_or_default().trim_ascii(), shape);
        found = Value::There;
    }
    found
}

/// One request, with the present values of its scope.
struct Request<'a, 'py> {
    names: &'a Names,
    scope: &'a Bound<'py, PyDict>,
    entry: &'a Entry,
    /// 0 before the end of the response.
    micros: u128,
}

impl<'py> Request<'_, 'py> {
    /// A text that every scope has.
    fn text(&self, name: &Py<PyString>) -> PyResult<Bound<'py, PyString>> {
        match self.scope.get_item(name)? {
            Some(value) => Ok(value.cast_into::<PyString>()?),
            None => Err(PyKeyError::new_err((name.clone_ref(self.scope.py()),))),
        }
    }

    fn push_text(&self, line: &mut String, name: &Py<PyString>, shape: Shape) -> PyResult<()> {
        push_bytes(line, self.text(name)?.to_str()?.as_bytes(), shape);
        Ok(())
    }

    /// The client's address, unless it has none.
    fn client(&self) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.scope.get_item(&self.names.client)?.filter(|client| !client.is_none()))
    }

    fn push_host(&self, line: &mut String, shape: Shape) -> PyResult<Value> {
        let Some(client) = self.client()? else { return Ok(Value::Missing) };
        let Ok(client) = client.cast_exact::<PyTuple>() else { return Ok(Value::Rare) };
        let host = client.get_item(0)?;
        let Ok(host) = host.cast::<PyString>() else { return Ok(Value::Rare) };
        match shape {
            Shape::Text => push_word(line, host.to_str()?.as_bytes()),
            Shape::Json => push_json(line, host.to_str()?.as_bytes()),
        }
        Ok(Value::There)
    }

    fn push_port(&self, line: &mut String) -> PyResult<Value> {
        let Some(client) = self.client()? else { return Ok(Value::Missing) };
        let Ok(client) = client.cast_exact::<PyTuple>() else { return Ok(Value::Rare) };
        let Ok(port) = client.get_item(1)?.extract::<u16>() else { return Ok(Value::Rare) };
        line.push_str(itoa::Buffer::new().format(port));
        Ok(Value::There)
    }

    /// Credentials are rare.
    fn push_user(&self) -> PyResult<Value> {
        let values = self.headers(b"authorization")?;
        Ok(if values.is_some_and(|values| values.is_empty()) { Value::Missing } else { Value::Rare })
    }

    fn push_request_line(&self, line: &mut String, shape: Shape) -> PyResult<Value> {
        self.push_text(line, &self.names.method, shape)?;
        line.push(' ');
        self.push_path(line)?;
        if matches!(self.push_query(line, shape, "?")?, Value::Rare) {
            return Ok(Value::Rare);
        }
        line.push_str(" HTTP/");
        self.push_text(line, &self.names.http_version, shape)?;
        Ok(Value::There)
    }

    fn push_path(&self, line: &mut String) -> PyResult<()> {
        push_path(line, self.text(&self.names.path)?.to_str()?);
        Ok(())
    }

    /// The query, with `mark` in front if there is one.
    fn push_query(&self, line: &mut String, shape: Shape, mark: &str) -> PyResult<Value> {
        let Some(query) = self.scope.get_item(&self.names.query_string)? else { return Ok(Value::Rare) };
        let Ok(query) = query.cast::<PyBytes>() else { return Ok(Value::Rare) };
        if !query.as_bytes().is_empty() {
            line.push_str(mark);
            push_bytes(line, query.as_bytes(), shape);
        }
        Ok(Value::There)
    }

    /// The values of the fields called `name`, in lower case; `None` if the fields are not as the scope had them.
    fn headers(&self, name: &[u8]) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let mut values = Vec::new();
        let Some(headers) = self.scope.get_item(&self.names.headers)? else { return Ok(None) };
        let Ok(headers) = headers.cast_exact::<PyList>() else { return Ok(None) };
        for header in headers.iter() {
            let Ok(pair) = header.cast_exact::<PyTuple>() else { return Ok(None) };
            if pair.len() != 2 {
                return Ok(None);
            }
            let (key, value) = (pair.get_item(0)?, pair.get_item(1)?);
            match (key.cast::<PyBytes>(), value.cast_into::<PyBytes>()) {
                (Ok(key), Ok(value)) if key.as_bytes() == name => values.push(value),
                (Ok(_), Ok(_)) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    fn push_header(&self, line: &mut String, name: &[u8], shape: Shape) -> PyResult<Value> {
        let Some(values) = self.headers(name)? else { return Ok(Value::Rare) };
        for (number, value) in values.iter().enumerate() {
            if number > 0 {
                line.push_str(", ");
            }
            push_bytes(line, value.as_bytes(), shape);
        }
        Ok(if values.is_empty() { Value::Missing } else { Value::There })
    }
}
