//! The messages of the application.

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use wire::texts;
use wire::ws::{is_close_code, truncate_reason};

use super::handshake::get;
use super::session::Session;
use super::states::{Ended, Stage, State};
use crate::asgi::conversation::{Conversation, Function, Received, Sent};
use crate::asgi::gate::Ticket;
use crate::asgi::host::Host;
use crate::asgi::message;
use crate::base::ffi::dict::each_item;
use crate::base::line::{Line, WOKEN_TOGETHER};
use crate::base::names::Names;
use crate::base::objects::{copy_of, same};
use crate::base::places;
use crate::base::waiter::Waiter;
use crate::conn::carried::Carried;

/// Get `message.get(name)`, unless it is None; messages are mostly dicts.
#[inline]
fn look_up<'py>(message: &Bound<'py, PyAny>, name: &Py<PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = match message.cast_exact::<PyDict>() {
        Ok(message) => message.get_item(name)?,
        Err(_) => Some(message.call_method1("get", (name,))?),
    };
    Ok(value.filter(|value| !value.is_none()))
}

/// Return `bytes` as they are, and a copy of anything else: the application may reuse its buffer.
fn as_bytes(value: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyBytes>> {
    match value.cast_into_exact::<PyBytes>() {
        Ok(bytes) => Ok(bytes),
        Err(other) => copy_of(&other.into_inner()),
    }
}

/// The keys of a `websocket.send`, as applications mostly write it; `None` if missing.
#[derive(Default)]
struct Content<'py> {
    kind: Option<Bound<'py, PyAny>>,
    bytes: Option<Bound<'py, PyAny>>,
    text: Option<Bound<'py, PyAny>>,
}

impl<'py> Content<'py> {
    /// Go through a dict whose keys are the interned strings that `names` has, and no others.
    #[inline]
    fn walk(message: &Bound<'py, PyAny>, names: &Names) -> Option<Self> {
        let message = message.cast_exact::<PyDict>().ok()?;
        let mut content = Self::default();
        let is_known = each_item(message, |key, value| {
            let place = if same(key, &names.r#type) {
                &mut content.kind
            } else if same(key, &names.text) {
                &mut content.text
            } else if same(key, &names.bytes) {
                &mut content.bytes
            } else {
                return false;
            };
            *place = Some(value).filter(|value| !value.is_none());
            true
        });
        is_known.then_some(content)
    }
}

impl Session {
    #[inline]
    fn has_event(&self) -> bool {
        !self.inbox.queue.borrow().is_empty() || self.is_disconnected()
    }

    fn send_message<'py>(
        self: &Rc<Self>,
        message: &Bound<'py, PyAny>,
        bytes: Option<Bound<'py, PyAny>>,
        text: impl FnOnce() -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<()> {
        let py = message.py();
        let Some(payload) = bytes else {
            let Some(text) = text()? else {
                return Err(PyTypeError::new_err("ASGI message 'websocket.send' needs 'bytes' or 'text'."));
            };
            // Other types have no `encode`, which the exception says.
            let text = match text.cast_into::<PyString>() {
                Ok(text) => text,
                Err(other) => other.into_inner().call_method0("encode")?.call_method0("decode")?.cast_into()?,
            };
            let encoded = text.to_str()?;
            if !self.is_accepted() {
                return self.send_other(message); // as for an accept: reading it can run code of the application
            }
            self.core.count(places::MESSAGES_SENT);
            self.log_sent(py, 1, || PyBytes::new(py, encoded.as_bytes()))?;
            return self.write_text(py, &text, encoded.as_bytes());
        };
        let payload = as_bytes(payload)?;
        if !self.is_accepted() {
            return self.send_other(message);
        }
        self.core.count(places::MESSAGES_SENT);
        self.log_sent(py, 2, || payload.clone())?;
        self.write_bytes(py, &payload)
    }

    #[inline]
    fn log_sent<'py>(
        &self,
        py: Python<'py>,
        opcode: u8,
        payload: impl FnOnce() -> Bound<'py, PyBytes>,
    ) -> PyResult<()> {
        match self.frame_log(py) {
            None => Ok(()),
            Some(log) => log.bind(py).call_method1("frame", (">", opcode, payload())).map(drop),
        }
    }

    /// Take an event that is not a message on an open connection.
    #[cold]
    pub(super) fn send_other(self: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let kind = message.get_item(&self.core.names.r#type)?;
        let kind = kind.str()?;
        let kind = kind.to_cow()?;
        match (self.stage(), &*kind) {
            (Stage::Connecting, "websocket.accept") => self.accept(message),
            (Stage::Connecting, "websocket.close") => self.reject(py),
            (Stage::Connecting, "websocket.http.response.start") => self.start_response(message),
            (Stage::Connecting, _) => Err(PyRuntimeError::new_err(format!(
                "Expected ASGI message 'websocket.accept', 'websocket.close' or 'websocket.http.response.start' but got \
                 '{kind}'."
            ))),
            (Stage::Accepted, "websocket.close") => self.app_close(message),
            (Stage::Accepted, _) => Err(PyRuntimeError::new_err(format!(
                "Expected ASGI message 'websocket.send' or 'websocket.close', but got '{kind}'."
            ))),
            (Stage::Denying, "websocket.http.response.body") => self.send_response_body(message),
            (Stage::Denying, _) => Err(PyRuntimeError::new_err(format!(
                "Expected ASGI message 'websocket.http.response.body' but got '{kind}'."
            ))),
            (stage @ (Stage::Closing | Stage::Closed), _) => Err(match self.ended.get() {
                Some(ended) if stage == Stage::Closing => {
                    PyRuntimeError::new_err(format!("Unexpected ASGI message '{kind}', {}.", ended.words()))
                }
                _ => PyErr::from_value(self.core.client_disconnected.bind(py).call0()?),
            }),
        }
    }

    fn app_close(self: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let code = look_up(message, &self.core.names.code)?;
        let number = match &code {
            None => Some(1000),
            Some(code) => code.extract::<u16>().ok().filter(|&code| is_close_code(code)),
        };
        let Some(number) = number else {
            let code = py.import("operator")?.call_method1("index", (code,))?;
            return Err(PyValueError::new_err(format!(
                "Invalid close code {code}: 1000 to 1003, 1007 to 1014 or 3000 to 4999 can be sent."
            )));
        };
        let reason = match look_up(message, &self.core.names.reason)? {
            Some(reason) if reason.is_truthy()? => reason.extract::<String>()?,
            _ => String::new(),
        };
        if !self.is_accepted() {
            return self.send_other(message);
        }
        self.ended.set(Some(Ended::Close));
        self.close(py, number, truncate_reason(&reason))
    }

    // A response of the application's own.

    fn start_response(self: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let names = &self.core.names;
        let headers = get(message, "headers")?.unwrap_or_else(|| PyTuple::empty(py).into_any());
        let class = py.import("uvicorn.protocols.websockets.denial")?.getattr("DenialResponse")?;
        let chunks = !self.sides.are_a_stream();
        let (status, own_line) = (message.get_item(&names.status)?, PyBytes::new(py, &self.own_line(py)?));
        let response = class.call1((status, headers, self.default_head(py)?, chunks, own_line))?;
        if self.stage() != Stage::Connecting {
            return self.send_other(message); // as for an accept
        }
        let status = response.getattr(&names.status)?.extract()?;
        if !chunks && status < 300 {
            return Err(PyRuntimeError::new_err(texts::opens_stream(status)));
        }
        self.log_handshake(py, status, &response.getattr("head")?.cast_into()?, false)?;
        self.enter(State::Denying(response.unbind()));
        Ok(())
    }

    fn send_response_body(self: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let names = &self.core.names;
        let body = match look_up(message, &names.body)? {
            Some(body) => as_bytes(body)?,
            None => names.empty_bytes.bind(message.py()).clone(),
        };
        let more_body = message.call_method1("get", (&names.more_body, false))?.is_truthy()?;
        let response = match &*self.state.borrow() {
            State::Denying(response) => Some(response.clone_ref(py)),
            _ => None,
        };
        let Some(response) = response else {
            return self.send_other(message); // reading it ran code of the application, which has sent the last piece
        };
        let response = response.bind(py);
        let encoded = response.call_method1("encode", (body, more_body))?.cast_into::<PyBytes>()?;
        self.write(py, encoded.as_bytes())?;
        if let Some(entry) = self.entry(py) {
            entry.bind(py).setattr("head", response.getattr("head")?)?;
            entry.bind(py).setattr("sent", response.getattr("sent")?)?;
        }
        if more_body {
            return Ok(());
        }
        self.ended.set(Some(Ended::Response));
        self.rejected(py, response.getattr(&names.status)?.extract()?)
    }

    /// The application has ended: close the connection if it is still open.
    fn app_ended(&self, py: Python<'_>, failed: bool) -> PyResult<()> {
        match self.stage() {
            Stage::Accepted => self.close(py, if failed { 1011 } else { 1000 }, ""),
            Stage::Connecting => self.refuse(py, 500, "Internal Server Error"),
            Stage::Denying => {
                // As with any response that was started: the client sees that it is not complete.
                self.tell_end(py, 1006, None)?;
                self.start_closing(py)?;
                self.close_transport(py)
            }
            Stage::Closing | Stage::Closed => Ok(()),
        }
    }
}

impl Conversation for Session {
    fn host(&self) -> &Rc<Host> {
        &self.core.host
    }

    fn scope(&self) -> &Py<PyDict> {
        // It begins with one.
        self.scope.get().unwrap_or(&self.core.names.disconnect)
    }

    fn class(&self) -> &'static str {
        "WebSocketSession"
    }

    fn begin_call(&self, py: Python<'_>) -> PyResult<()> {
        self.span(py).map_or(Ok(()), |span| span.call_method0(&self.core.names.run).map(drop))
    }

    fn receive<'py>(&self, py: Python<'py>, in_turn: bool) -> PyResult<Received<'py>> {
        if self.inbox.queue.borrow().is_empty() && !in_turn {
            self.end_for_peer(py)?;
        }
        if !(in_turn || self.inbox.receivers.is_empty()) || !self.has_event() {
            return Ok(Received::Nothing);
        }
        let event = self.inbox.queue.borrow_mut().pop_front();
        let Some(event) = event else { return Ok(Received::Last) };
        self.inbox.took_at.set(Some(self.now()));
        if self.inbox.queue.borrow().is_empty() {
            self.inbox.queued.set(0);
            if self.inflow.read_paused.get() && self.is_accepted() {
                self.inbox.taking.set(in_turn);
                let resumed = self.resume_reading(py);
                self.inbox.taking.set(false);
                resumed?;
            }
        }
        Ok(Received::Message(event.into_bound(py)))
    }

    fn last_message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(event) = self.told(py) {
            return event.bind(py).copy();
        }
        let event = PyDict::new(py);
        event.set_item(&self.core.names.r#type, "websocket.disconnect")?;
        event.set_item(&self.core.names.code, 1006)?;
        Ok(event)
    }

    fn copy<'py>(&self, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.core.names;
        message::copy(message, names, [&names.bytes, &names.body])
    }

    fn send(self: Rc<Self>, message: &Bound<'_, PyAny>, in_turn: bool) -> PyResult<Sent> {
        if self.outflow.capacity.is_paused() || !(in_turn || self.outflow.capacity.writers.is_empty()) {
            return Ok(Sent::Later);
        }
        self.guard(message.py(), Function::Send.name(), |session| {
            let core = &session.core;
            if let Some(Content { kind: Some(kind), bytes, text }) = Content::walk(message, &core.names)
                && session.is_accepted()
                && core.send.is(&kind)?
            {
                return session.send_message(message, bytes, || Ok(text)).map(|()| Sent::Done);
            }
            let kind = message.get_item(&core.names.r#type)?;
            if session.is_accepted() && core.send.is(&kind)? {
                let bytes = look_up(message, &core.names.bytes)?;
                session.send_message(message, bytes, || look_up(message, &core.names.text))?;
            } else {
                session.send_other(message)?;
            }
            Ok(Sent::Done)
        })
    }

    fn waiter(&self, py: Python<'_>) -> PyResult<Option<Py<Waiter>>> {
        if !self.inbox.has_waiters.get() {
            return Ok(None);
        }
        let lent = self.inbox.lent_waiter.take();
        if let Some(waiter) = lent {
            let at_work = self.core.current_task.bind(py).call1((&self.core.event_loop,))?;
            if waiter.get().is_lent_to(&at_work)? {
                return Ok(Some(waiter));
            }
            // A child that the application has started inside its step waits for something of its own.
            self.lend_waiter(Some(waiter));
        }
        Waiter::new(py, &self.core.event_loop).map(Some)
    }

    fn lend_waiter(&self, waiter: Option<Py<Waiter>>) {
        let old = self.inbox.lent_waiter.replace(waiter);
        drop(old);
    }

    fn line(&self, function: Function) -> &Line {
        match function {
            Function::Receive => &self.inbox.receivers,
            Function::Send => &self.outflow.capacity.writers,
        }
    }

    fn advance(&self, py: Python<'_>, function: Function) -> PyResult<()> {
        let ready = match function {
            Function::Receive => self.has_event(),
            Function::Send => !self.outflow.capacity.is_paused(),
        };
        if ready { self.line(function).advance(py, &self.core.names, WOKEN_TOGETHER) } else { Ok(()) }
    }

    fn returned(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let logger = self.core.logger.bind(py);
        let error = &self.core.names.error;
        let failed = !result.is_none();
        if failed {
            if let Some(span) = self.span(py) {
                span.call_method0(&self.core.names.fail)?;
            }
            logger.call_method1(error, (texts::APPLICATION_RETURNED, result))?;
        } else if matches!(self.stage(), Stage::Connecting | Stage::Denying) {
            logger.call_method1(error, ("ASGI callable returned without completing handshake.",))?;
        }
        self.app_ended(py, failed)
    }

    fn raised(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        // The application need not handle that its client has gone.
        let failed = !error.is_instance(py, self.core.client_disconnected.bind(py));
        if failed {
            if let Some(span) = self.span(py) {
                span.call_method1(&self.core.names.fail, (error.value(py),))?;
            }
            self.core.log_exception(py, texts::APPLICATION_FAILED, error)?;
        }
        self.app_ended(py, failed)
    }

    /// End without an error: any work left was dropped deliberately.
    fn end(&self, py: Python<'_>) -> PyResult<Option<Rc<Ticket>>> {
        self.give_place_back(py).map(|()| None)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        Carried::abandon(self, py)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if self.shown.get() { Ok(()) } else { self.visit(visit) }
    }

    fn clear(&self) {
        self.inbox.receivers.clear();
        self.outflow.capacity.writers.clear();
    }
}
