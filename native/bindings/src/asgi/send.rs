//! `send()`: the effects of a response's messages.

use std::rc::Rc;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use wire::texts;

use super::conversation::Sent;
use super::exchange::{Exchange, State};
use super::extension::{self, out_of_order};
use super::message::{Message, with_pair};
use super::stream::Follows;
use crate::base::objects::copy_of;

/// Take one message of the response from the application.
#[inline]
pub(crate) fn send(this: &Rc<Exchange>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
    let py = message.py();
    let host = &this.host;
    if this.is_disconnected() && this.state() != State::Complete {
        host.dropped(&this.scope, message)?;
        return Ok(Sent::Done);
    }
    let names = &host.names;
    let mut parts = Message::read(message, names);
    let kind = &parts.kind(names)?;
    match this.state() {
        State::Idle if host.response_start.is(kind)? => {
            let status = parts.status(names)?;
            start(this, kind, &status, parts.headers(names)?.as_ref())?;
            this.set_state(State::Started);
            if parts.trailers(names)? && host.settings.offers("http.response.trailers") {
                this.trailers.set(Some(Box::default()));
            }
        }
        State::Started if host.response_body.is(kind)? => {
            let follows = match parts.more_body(names)? {
                true => Follows::Body,
                false if this.expects_trailers() => Follows::Trailers,
                false => Follows::Nothing,
            };
            // Any other buffer is copied: the application may reuse it as soon as this returns.
            let copy;
            let body = parts.body(names)?;
            let body = match body.as_ref().map(|body| (body, body.cast_exact::<PyBytes>())) {
                None => None,
                Some((_, Ok(bytes))) => Some(bytes),
                Some((other, Err(_))) if other.is_none() => None,
                Some((other, Err(_))) => {
                    copy = copy_of(other)?;
                    Some(&copy)
                }
            };
            if this.state() != State::Started {
                // Reading the message ran code of the application, which has sent something meanwhile.
                return Err(out_of_order(this.state(), kind));
            }
            this.stream.body(py, body, follows)?;
            this.log_sent(body.map_or(0, |body| body.as_bytes().len()));
            match follows {
                Follows::Body => this.note_part(),
                Follows::Trailers => this.await_trailers(py)?,
                Follows::Nothing => this.complete(py)?,
            }
        }
        _ => return Ok(extension::send(this, message, kind)?.map_or(Sent::Done, Sent::PassedOn)),
    }
    Ok(Sent::Done)
}

/// Encode the head of the response, and log it.
#[inline]
fn start(
    exchange: &Exchange,
    kind: &Bound<'_, PyAny>,
    status: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let Exchange { host, stream, .. } = exchange;
    let py = kind.py();
    let status = final_status(status)?;
    let own = exchange.own_field(py);
    let own = own.as_ref();
    if !stream.start(py, status, headers, own)? {
        let collected = headers.map(collect).transpose()?;
        if exchange.state() != State::Idle {
            return Err(out_of_order(exchange.state(), kind));
        }
        stream.start(py, status, collected.as_ref(), own)?;
    }
    exchange.note_status(status);
    exchange.log_start(py, status, || stream.head(host.access.wants_head()))
}

fn final_status(status: &Bound<'_, PyAny>) -> PyResult<u16> {
    if !status.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err(texts::status_type(status.repr()?)));
    }
    match status.extract::<u16>() {
        Ok(code @ 200..=599) => Ok(code),
        _ => Err(PyRuntimeError::new_err(texts::status(status.str()?))),
    }
}

/// The same headers as plain pairs of byte strings, whatever they are made of.
#[cold]
fn collect<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = headers.py();
    let pairs = PyList::empty(py);
    for header in headers.try_iter()? {
        let pair = with_pair(&header?, |name, value| Ok((PyBytes::new(py, name), PyBytes::new(py, value))))?;
        pairs.append(pair)?;
    }
    Ok(pairs.into_any())
}
