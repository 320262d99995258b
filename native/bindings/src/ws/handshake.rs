//! The opening handshake: the client's request, and its answer.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::error::Error;
use wire::h1::Status;
use wire::h1::request::Head;
use wire::ws::{Connection as Wire, Handshake};

use super::session::Session;
use super::states::{Connecting, Ended, Stage, State};
use crate::asgi::gate::{self, Decision, TicketHolder, Waiting};
use crate::asgi::identity::Identity;
use crate::asgi::message::with_pair;
use crate::base::error::exception;
use crate::base::names::Names;
use crate::base::places;
use crate::base::shortcuts::Shortcut;
use crate::base::task::Start;
use crate::conn::carried::Carried;
use crate::conn::carrier::Carrier;
use crate::streams::sections::lines_without;

/// How far the head of the handshake has come.
enum Read {
    Partly,
    /// The bytes of the head, and itself.
    Whole(usize, Box<Head>),
    Refused(Error),
}

impl Session {
    /// Collect the head of the handshake; its deadline was the HTTP protocol's.
    pub(super) fn receive_head(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if self.stage() != Stage::Connecting {
            return Ok(());
        }
        self.feed(data);
        match self.read_head() {
            Read::Partly => Ok(()),
            Read::Refused(error) => self.refuse_handshake(py, error),
            Read::Whole(length, head) => {
                // A copy, because the following calls may run Python code.
                let bytes = self.inflow.input.borrow().get(..length).unwrap_or_default().to_vec();
                match Handshake::read(&head, &bytes, self.core.deflate) {
                    Ok(handshake) => self.begin(py, &head, &bytes, &handshake),
                    Err(error) => self.refuse_handshake(py, error),
                }
            }
        }
    }

    fn read_head(&self) -> Read {
        let State::Connecting(Connecting::Head(head)) = &mut *self.state.borrow_mut() else { return Read::Partly };
        match head.parse(&self.inflow.input.borrow(), &self.core.settings.limits) {
            Ok(Status::Partial) => Read::Partly,
            Ok(Status::Complete(length)) => Read::Whole(length, std::mem::take(head)),
            Err(error) => Read::Refused(error),
        }
    }

    fn refuse_handshake(&self, py: Python<'_>, error: Error) -> PyResult<()> {
        let (status, reason) = (error.status(), error.reason());
        self.note_refusal(py, status, &reason)?;
        self.refuse(py, status, &format!("Failed to open a WebSocket connection: {reason}.\n"))
    }

    /// The handshake is valid: start the application.
    fn begin(self: &Rc<Self>, py: Python<'_>, head: &Head, input: &[u8], handshake: &Handshake<'_>) -> PyResult<()> {
        let core = &self.core;
        let target = head.target;
        let headers = core.tuples.list(py, &core.names, &head.fields, target.authority.of(input), input)?;
        let parts = (target.effective_path(input, head.verb), target.query.of(input));
        let scope = self.build_scope(parts, &headers, handshake)?;
        self.inflow.input.borrow_mut().drain(..input.len());
        let has_authority = !target.authority.is_empty();
        let whole = if has_authority { target_of(parts) } else { target.whole.of(input).to_vec() };
        self.start(&scope, &headers, &[b"GET ".as_slice(), &whole, b" HTTP/1.1"].concat())
    }

    /// A stream of this version of HTTP is to become a WebSocket (RFC 8441, RFC 9220), and `protocol` is what it is to Python.
    pub(crate) fn open_on(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        stream: Rc<dyn Carrier>,
        version: &'static str,
        parts: (&[u8], &[u8]),
        headers: &Bound<'_, PyList>,
        handshake: &Handshake<'_>,
    ) -> PyResult<()> {
        let py = protocol.py();
        self.sides.attach(protocol, stream);
        self.guard(py, "connection_made", |session| {
            session.open(protocol)?;
            let scope = session.build_scope(parts, headers, handshake)?;
            scope.set_item(&session.core.names.http_version, PyString::intern(py, version))?;
            session.start(
                &scope,
                headers,
                &[b"CONNECT ".as_slice(), &target_of(parts), b" HTTP/", version.as_bytes()].concat(),
            )
        })
    }

    fn build_scope<'py>(
        &self,
        parts: (&[u8], &[u8]),
        headers: &Bound<'py, PyList>,
        handshake: &Handshake<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let peer = self.peer.borrow().clone();
        let (scope, id) = self.core.runner.websocket_scope(parts, headers, &handshake.subprotocols, &peer)?;
        if let Some(id) = id {
            let _ = self.id.set(id.unbind());
        }
        let _ = self.scope.set(scope.clone().unbind());
        self.enter(State::Connecting(Connecting::Asked(Box::new(handshake.answer))));
        Ok(scope)
    }

    /// Start the application; debug lines begin with `line`.
    fn start(self: &Rc<Self>, scope: &Bound<'_, PyDict>, headers: &Bound<'_, PyList>, line: &[u8]) -> PyResult<()> {
        let (core, py) = (&self.core, scope.py());
        if let Some(tracing) = &core.host.tracing
            && let Some(span) = tracing.begin_session(scope)?
        {
            self.rare().span.replace(Some(span));
        }
        let shared = core.host.state.bind(py).getattr("protocol_settings")?;
        if let Some(log) = shared.getattr_opt("formatted")?.filter(|log| !log.is_none()) {
            self.rare().entry.replace(Some(log.call_method1("begin", (scope,))?.unbind()));
        }
        if let Some(log) = self.frame_log(py) {
            let mut lines = line.to_vec();
            for field in headers.iter() {
                with_pair(&field, |name, value| {
                    lines.extend_from_slice(&[b"\r\n".as_slice(), name, b": ", value].concat());
                    Ok(())
                })?;
            }
            log.bind(py).call_method1("head", ("<", PyBytes::new(py, &lines)))?;
        }
        if let Some(gate) = &core.runner.gate {
            match gate.enter(scope, true)? {
                Decision::Uncounted => {}
                Decision::Admitted(ticket) => self.ticket.set(Some(Box::new(ticket))),
                Decision::Refused => return self.refuse_overload(py),
                Decision::Waits(ticket) => {
                    ticket.hold(&Bound::new(py, TicketHolder::new(WaitingHandshake(self.clone())))?)?;
                    self.ticket.set(Some(Box::new(ticket)));
                    return Ok(());
                }
            }
        }
        self.call_application(py)
    }

    /// Start the application in a task.
    fn call_application(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let core = &self.core;
        let event = PyDict::new(py);
        event.set_item(&core.names.r#type, "websocket.connect")?;
        self.inbox.queue.borrow_mut().push_back(event.unbind());
        // Frames behind the handshake have to be there first.
        let start = Start::of(core, py)?.later();
        let is_proved = core.eager && start != Start::Inspectably;
        self.inbox.has_waiters.set(is_proved && core.settings.shortcuts.take(Shortcut::Waiters));
        core.runner.start(py, self.clone(), core.runner.app.clone_ref(py), start)
    }

    /// The handshake is over. How long it took says nothing about requests.
    pub(super) fn give_place_back(&self, py: Python<'_>) -> PyResult<()> {
        self.ticket.take().map_or(Ok(()), |ticket| ticket.give_back_unmeasured(py))
    }

    /// The connection ends: a handshake that waits for its turn stops waiting. Returns whether it did wait.
    pub(super) fn leave_queue(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(ticket) = self.ticket.take() else { return Ok(false) };
        let left = ticket.leave(py);
        self.ticket.set(Some(ticket));
        left
    }

    /// Answer 503: there is no place for the handshake.
    pub(super) fn refuse_overload(&self, py: Python<'_>) -> PyResult<()> {
        let hints = self.core.runner.gate.as_ref().map(|gate| &gate.hints);
        self.refuse_with(py, gate::STATUS, "Service Unavailable", hints)
    }

    /// The server's own fields, in front of each response.
    pub(super) fn default_head<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let head = self.core.host.state.bind(py).getattr(&self.core.names.default_head)?.cast_into::<PyBytes>()?;
        let Some(omitted) = self.sides.carrier().and_then(|carrier| carrier.omitted_field()) else { return Ok(head) };
        let lines: Vec<_> = lines_without(head.as_bytes(), Some(omitted)).collect();
        Ok(PyBytes::new(py, &lines.concat()))
    }

    /// The line of a response with the id of the request; none if it has no id.
    pub(super) fn own_line(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let (Some(id), Some(identity)) = (self.id.get(), &self.core.host.identity) else { return Ok(Vec::new()) };
        Ok([&identity.name, b": ".as_slice(), id.bind(py).to_str()?.as_bytes(), b"\r\n"].concat())
    }

    /// Open the connection as the application asks, and read the data that has arrived meanwhile.
    pub(super) fn accept(self: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = message.py();
        let answer = match &*self.state.borrow() {
            State::Connecting(Connecting::Asked(answer)) => **answer,
            _ => return Ok(()),
        };
        let fields = collect_headers(message, &self.core.names)?;
        let subprotocol = get(message, "subprotocol")?.filter(|name| name.is_truthy().unwrap_or(true));
        let subprotocol = subprotocol.map(|name| name.extract::<String>()).transpose()?;
        let mut defaults = self.default_head(py)?.as_bytes().to_vec();
        let is_own = |identity: &Identity| fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(&identity.name));
        if !self.core.host.identity.as_ref().is_none_or(is_own) {
            defaults.extend(self.own_line(py)?);
        }
        let mut out = Vec::new();
        let pairs = fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        answer.accept(&mut out, subprotocol.as_deref(), &defaults, pairs).map_err(exception)?;
        if self.stage() != Stage::Connecting {
            // Reading the message ran code of the application, which has sent something meanwhile.
            return self.send_other(message);
        }
        let response = PyBytes::new(py, &out);
        self.log_handshake(py, answer.status(), &response, true)?;
        self.enter(State::Accepted(Box::new(Wire::new(answer.deflate).in_pieces(self.pieces_from()))));
        self.core.count(places::ACCEPTED);
        if let Some(routes) = self.core.metrics.as_ref().and_then(|metrics| metrics.routes.as_ref())
            && let Some(scope) = self.scope.get()
        {
            self.rare().counted.set(Some(routes.open_session(scope.bind(py))?));
        }
        self.give_place_back(py)?;
        self.write_head(py, &response)?;
        self.say(py, ("connection open",))?;
        self.start_keepalive(py)?;
        self.inbox.took_at.set(Some(self.now()));
        self.keep_little(py);
        self.resume_reading(py)
    }

    /// It may be idle for hours: buffers of the hand-over and the handshake are not kept.
    fn keep_little(&self, py: Python<'_>) {
        if let Some(carrier) = self.sides.carrier() {
            carrier.release_transport(py);
        }
        self.inbox.queue.borrow_mut().shrink_to_fit();
    }

    pub(super) fn write_head(&self, py: Python<'_>, response: &Bound<'_, PyBytes>) -> PyResult<()> {
        if let Some(log) = self.frame_log(py) {
            log.bind(py).call_method1("head", (">", response))?;
        }
        self.write(py, response.as_bytes())
    }

    /// A response of the server's own, that opens nothing.
    fn refusal<'py>(
        &self,
        py: Python<'py>,
        status: u16,
        text: &str,
        fields: Option<&Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let is_head = self.scope.get().is_none() && {
            let head = PyBytes::new(py, &self.inflow.input.borrow());
            let module = py.import("uvicorn.protocols.http.wire.head")?;
            module.call_method1("asks_for_head", (head,))?.is_truthy()?
        };
        let module = py.import("uvicorn.protocols.websockets.handshake")?;
        let body = PyBytes::new(py, text.as_bytes());
        let fields = fields.map_or_else(|| PyTuple::empty(py).into_any(), |fields| fields.bind(py).clone());
        let defaults = PyBytes::new(py, &[self.default_head(py)?.as_bytes(), &self.own_line(py)?].concat());
        Ok(module.call_method1("refuse_response", (status, body, defaults, is_head, fields))?.cast_into()?)
    }

    /// Answer with a response of the server's own.
    pub(super) fn refuse(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<()> {
        self.refuse_with(py, status, text, None)
    }

    /// With `fields` behind those about the content.
    fn refuse_with(&self, py: Python<'_>, status: u16, text: &str, fields: Option<&Py<PyAny>>) -> PyResult<()> {
        let response = self.refusal(py, status, text, fields)?;
        self.log_handshake(py, status, &response, false)?;
        if let Some(entry) = self.entry(py) {
            entry.bind(py).setattr("sent", text.len())?;
        }
        self.write_head(py, &response)?;
        self.rejected(py, status)
    }

    /// The application does not want it.
    pub(super) fn reject(&self, py: Python<'_>) -> PyResult<()> {
        let response = self.refusal(py, 403, "", None)?;
        self.log_handshake(py, 403, &response, false)?;
        self.ended.set(Some(Ended::Close));
        self.write_head(py, &response)?;
        self.rejected(py, 403)
    }
}

/// A handshake whose application is called once there is a place for it.
struct WaitingHandshake(Rc<Session>);

impl Waiting for WaitingHandshake {
    /// Start the application, not `eagerly`: frames behind the handshake have to be there first.
    fn admit(&self, py: Python<'_>, _eagerly: bool) -> PyResult<()> {
        let Self(session) = self;
        if session.stage() == Stage::Connecting {
            return session.guard(py, "admit", |session| session.call_application(py));
        }
        session.give_place_back(py)
    }

    /// Answer 503, unless the connection has ended.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.stage() != Stage::Connecting {
            return Ok(());
        }
        self.0.guard(py, "refuse", |session| session.refuse_overload(py))
    }

    /// Do nothing: handshakes are not parked.
    fn evict(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}

/// Get `message.get(name)`, unless it is None.
pub(super) fn get<'py>(message: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = message.call_method1("get", (name,))?;
    Ok(Some(value).filter(|value| !value.is_none()))
}

fn collect_headers(message: &Bound<'_, PyAny>, names: &Names) -> PyResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut fields = Vec::new();
    let headers = message.call_method1("get", (&names.headers,))?;
    if headers.is_truthy()? {
        for field in headers.try_iter()? {
            fields.push(with_pair(&field?, |name, value| Ok((name.to_vec(), value.to_vec())))?);
        }
    }
    Ok(fields)
}

/// Path and query as one.
fn target_of((path, query): (&[u8], &[u8])) -> Vec<u8> {
    if query.is_empty() { path.to_vec() } else { [path, b"?", query].concat() }
}
