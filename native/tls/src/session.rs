//! One connection: records in, plaintext out; plaintext in, records out.
//!
//! ```text
//! HELLO ──ClientHello is complete──▶ SHAKING ──Finished──▶ OPEN ──finish──▶ FINISHED (close_notify is sent)
//!   └──────────────┴───────an error──────┴───▶ FAILED ◀──an error──┴───────────┘
//! ```
//!
//! The peer's direction ends by itself (RFC 8446 section 6.1): `peer_ended`. Input follows in every state but FAILED.

use std::io::IoSlice;
use std::mem;
use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, HandshakeKind};

use crate::config::Config;
#[cfg(feature = "aws-lc")]
use crate::direct;
use crate::failure::{Failure, FailureKind};
use crate::hello::Reading;
use crate::scratch::Scratch;

/// The most plaintext of a record (RFC 8446 section 5.1).
const FRAGMENT: usize = 16 * 1024;
/// More than a record adds to its plaintext (RFC 5246 section 6.2.3, RFC 8446 section 5.2).
const OVERHEAD: usize = 40;

/// The most of records that are kept: a message of the longest that rustls reads (64 KiB) in records of 64 bytes. They are
/// copied with each read, so one in records of single bytes would cost more than it costs the client.
const MOST_KEPT: usize = 96 * 1024;

/// Full records that are encrypted at once.
const MOST_PLACED: usize = 8;

/// What encrypts, once the handshake is complete.
type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

enum State {
    Hello(Reading),
    Shaking(Box<UnbufferedServerConnection>),
    Open(Box<UnbufferedServerConnection>),
    Finished(Box<UnbufferedServerConnection>),
    Failed,
}

/// The course of a handshake that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaken {
    /// 0x0303 is TLS 1.2.
    pub version: u16,
    /// The session of an earlier connection was resumed.
    pub resumed: bool,
}

/// The result of [`Session::receive`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of plaintext that were written.
    pub length: usize,
    /// An error behind them.
    pub failure: Option<Failure>,
}

/// The server's end of one connection.
pub struct Session {
    config: Arc<Config>,
    state: State,
    /// The peer has sent `close_notify`.
    peer_ended: bool,
    server_name: Option<Box<str>>,
    /// The client has no version that is served; rustls may find another fault first.
    is_old: bool,
    /// Why the certificate of the client is not good.
    error: Option<Box<str>>,
    /// Records that are not complete.
    records: Vec<u8>,
    /// Plaintext that was not asked for yet.
    plain: Vec<u8>,
}

impl Session {
    /// A session whose client has sent nothing yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            state: State::Hello(Reading::default()),
            peer_ended: false,
            server_name: None,
            is_old: false,
            error: None,
            records: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Whether the handshake is complete.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_) | State::Finished(_))
    }

    /// Whether the client's first message is not complete.
    pub fn awaits_hello(&self) -> bool {
        matches!(self.state, State::Hello(_))
    }

    /// Whether the peer has ended its direction, and all that came before was read.
    pub fn has_ended(&self) -> bool {
        self.peer_ended && self.plain.is_empty()
    }

    /// Whether plaintext waits for the next [`receive`](Self::receive).
    pub fn has_plaintext(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Bytes that [`receive`](Self::receive) has besides those that are new.
    pub fn buffered(&self) -> usize {
        self.records.len() + self.plain.len()
    }

    /// The place for `most` bytes of new records.
    pub fn room<'a>(&self, scratch: &'a mut Scratch, most: usize) -> &'a mut [u8] {
        let kept = self.records.len();
        scratch.reserve(kept + most).get_mut(kept..kept + most).unwrap_or_default()
    }

    /// Process `length` new bytes in the [`room`](Self::room), behind those that are kept. Plaintext without a place in
    /// `into` comes with the next call. Answers are in the output of `scratch`, also if this fails.
    ///
    /// An `into` of [`buffered`](Self::buffered) bytes and `length` more has a place for everything.
    pub fn receive(&mut self, scratch: &mut Scratch, length: usize, into: &mut [u8]) -> Received {
        let records = mem::take(&mut self.records);
        let kept = records.len();
        if let Some(place) = scratch.reserve(kept + length).get_mut(..kept) {
            place.copy_from_slice(&records);
        }
        let mut input = mem::take(&mut scratch.input);
        let outcome = self.process(scratch, input.get_mut(..kept + length).unwrap_or_default(), into);
        scratch.input = input;
        outcome
    }

    fn process(&mut self, scratch: &mut Scratch, input: &mut [u8], into: &mut [u8]) -> Received {
        let mut plain = Plain { into, length: 0, rest: mem::take(&mut self.plain) };
        plain.settle();
        let outcome = self.advance(scratch, input, &mut plain);
        let length = plain.length;
        self.plain = plain.rest;
        let failure = match outcome {
            Ok(consumed) => {
                let kept = input.get(consumed..).filter(|_| !self.peer_ended).unwrap_or_default();
                self.records = kept.to_vec();
                let is_cut_up = kept.len() > MOST_KEPT;
                is_cut_up
                    .then(|| self.fail(scratch, Failure::new(FailureKind::Other, "a message has too many records")))
            }
            Err(failure) => Some(self.fail(scratch, failure)),
        };
        Received { length, failure }
    }

    /// Process `input`; returns how much of it is consumed.
    fn advance(&mut self, scratch: &mut Scratch, input: &mut [u8], plain: &mut Plain<'_>) -> Result<usize, Failure> {
        if let State::Hello(reading) = &mut self.state {
            let Some(hello) = reading.look(input) else { return Ok(0) };
            let connection = UnbufferedServerConnection::new(self.config.select(&hello));
            let connection = connection.map_err(|error| Failure::of(&error, false))?;
            self.is_old = hello.is_old;
            self.server_name = hello.server_name.map(String::into_boxed_str);
            self.state = State::Shaking(Box::new(connection));
        }
        let is_first = matches!(self.state, State::Shaking(_));
        let (State::Shaking(connection) | State::Open(connection) | State::Finished(connection)) = &mut self.state
        else {
            return Ok(input.len());
        };
        let mut at = 0;
        loop {
            let rest = input.get_mut(at..).unwrap_or_default();
            let (discard, next) = step(connection, rest, scratch, &mut self.peer_ended, |data| plain.add(data));
            at += discard;
            match next {
                Err(Fault::Encoding(failure)) => return Err(failure),
                Err(Fault::Peer(error)) => {
                    let is_first = is_first && connection.protocol_version().is_none();
                    let failure = Failure::of(&error, is_first);
                    let is_old = self.is_old && failure.kind == FailureKind::Parameters;
                    return Err(if is_old { Failure::of_version(&failure) } else { failure });
                }
                Ok(Next::Step) => {}
                Ok(Next::Write(_) | Next::Wait) => break,
            }
        }
        if is_first && !connection.is_handshaking() {
            self.open();
        }
        Ok(at)
    }

    /// The handshake is complete.
    fn open(&mut self) {
        let State::Shaking(connection) = mem::replace(&mut self.state, State::Failed) else { return };
        let error = connection.peer_certificates().and_then(|chain| self.config.error_of(chain));
        self.error = error.map(String::into_boxed_str);
        self.state = State::Open(connection);
    }

    /// The alert is encoded, and nothing follows.
    fn fail(&mut self, scratch: &mut Scratch, failure: Failure) -> Failure {
        let state = mem::replace(&mut self.state, State::Failed);
        // Behind our close_notify nothing follows.
        if let State::Shaking(mut connection) | State::Open(mut connection) = state {
            while connection.wants_write() {
                let UnbufferedStatus { state, .. } = connection.process_tls_records(&mut []);
                match state {
                    Ok(ConnectionState::EncodeTlsData(mut data)) => {
                        if encode(scratch, |room| data.encode(room)).is_err() {
                            break;
                        }
                    }
                    Ok(ConnectionState::ReadTraffic(mut traffic)) => while traffic.next_record().is_some() {},
                    _ => break,
                }
            }
        }
        failure
    }

    /// The peer's input is over. Fails unless it has said so by `close_notify`.
    pub fn end_input(&mut self) -> Result<(), Failure> {
        if self.peer_ended {
            return Ok(());
        }
        let text = if self.is_open() { "the peer has closed without close_notify" } else { "the peer has closed" };
        Err(Failure::new(FailureKind::Closed, text))
    }

    /// Encrypt `pieces` one behind the other, into the output of `scratch`. Does nothing if the session is not open.
    pub fn seal(&mut self, scratch: &mut Scratch, pieces: &[IoSlice<'_>]) -> Result<(), Failure> {
        if !matches!(self.state, State::Open(_)) {
            return Ok(());
        }
        self.with_traffic(scratch, |scratch, traffic| {
            let total: usize = pieces.iter().map(|piece| piece.len()).sum();
            if total <= FRAGMENT && pieces.len() > 1 {
                // One record for the head of a response and a small body.
                let mut gathered = mem::take(&mut scratch.gathered);
                gathered.clear();
                for piece in pieces {
                    gathered.extend_from_slice(piece);
                }
                let outcome = encrypt(scratch, traffic, &gathered);
                scratch.gathered = gathered;
                return outcome;
            }
            pieces.iter().try_for_each(|piece| encrypt(scratch, traffic, piece))
        })
    }

    /// Tell the peer that nothing follows (RFC 8446 section 6.1).
    pub fn finish(&mut self, scratch: &mut Scratch) -> Result<(), Failure> {
        if !matches!(self.state, State::Open(_)) {
            return Ok(());
        }
        let outcome =
            self.with_traffic(scratch, |scratch, traffic| sealed(scratch, 0, |room| traffic.queue_close_notify(room)));
        self.state = match mem::replace(&mut self.state, State::Failed) {
            State::Open(connection) => State::Finished(connection),
            other => other,
        };
        outcome
    }

    /// Whether [`seal`](Self::seal) does anything: the handshake is complete, and our direction has not ended.
    pub fn can_seal(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn with_traffic(
        &mut self,
        scratch: &mut Scratch,
        act: impl FnMut(&mut Scratch, &mut Traffic<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let outcome = self.seek_traffic(scratch, act);
        outcome.map_err(|failure| self.fail(scratch, failure))
    }

    fn seek_traffic(
        &mut self,
        scratch: &mut Scratch,
        mut act: impl FnMut(&mut Scratch, &mut Traffic<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let State::Open(connection) = &mut self.state else { return Ok(()) };
        loop {
            let add = |data: &[u8]| self.plain.extend_from_slice(data);
            let (discard, next) = step(connection, &mut self.records, scratch, &mut self.peer_ended, add);
            let outcome = match next {
                Err(Fault::Encoding(failure)) => return Err(failure),
                Err(Fault::Peer(error)) => return Err(Failure::of(&error, false)),
                Ok(Next::Step) => None,
                Ok(Next::Write(mut traffic)) => Some(act(scratch, &mut traffic)),
                Ok(Next::Wait) => Some(Ok(())),
            };
            if discard > 0 {
                self.records.drain(..discard.min(self.records.len()));
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    // The parameters that both sides have agreed on.

    fn connection(&self) -> Option<&UnbufferedServerConnection> {
        match &self.state {
            State::Shaking(connection) | State::Open(connection) | State::Finished(connection) => Some(connection),
            State::Hello(_) | State::Failed => None,
        }
    }

    /// The version, and whether a session was resumed, once the handshake is complete.
    pub fn shaken(&self) -> Option<Shaken> {
        let connection = self.connection().filter(|_| self.is_open())?;
        let version = u16::from(connection.protocol_version()?);
        Some(Shaken { version, resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed) })
    }

    /// The IANA number of the cipher suite.
    pub fn suite(&self) -> Option<u16> {
        self.connection()?.negotiated_cipher_suite().map(|suite| u16::from(suite.suite()))
    }

    /// The IANA number of the group of the key exchange; `None` for resumed sessions of TLS 1.2.
    pub fn group(&self) -> Option<u16> {
        self.connection()?.negotiated_key_exchange_group().map(|group| u16::from(group.name()))
    }

    /// The protocol of ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection()?.alpn_protocol()
    }

    /// The name that the client has asked for, in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The name of the certificate that was shown; `None` is the one for all other names.
    pub fn host(&self) -> Option<&str> {
        self.config.host_of(self.server_name())
    }

    /// The client's certificate in DER, and those that lead from it to an authority.
    pub fn chain(&self) -> Vec<&[u8]> {
        let chain = self.connection().and_then(|connection| connection.peer_certificates());
        self.config.path(chain.unwrap_or_default()).into_iter().map(AsRef::as_ref).collect()
    }

    /// Why the certificate of the client is not good, if it is served nevertheless.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// What a session can do next.
enum Next<'a> {
    /// Another [`step`].
    Step,
    /// Encrypt; otherwise it waits.
    Write(Traffic<'a>),
    /// Nothing before more of the peer's input comes.
    Wait,
}

/// Why a [`step`] has failed.
enum Fault {
    /// By the peer's input, or its end.
    Peer(Error),
    /// By records of ours.
    Encoding(Failure),
}

/// Take one step of rustls over `input`: records of the handshake go into `scratch`, plaintext goes to `add`. Returns how much
/// of the input is to be discarded then.
fn step<'a>(
    connection: &'a mut UnbufferedServerConnection,
    input: &mut [u8],
    scratch: &mut Scratch,
    peer_ended: &mut bool,
    mut add: impl FnMut(&[u8]),
) -> (usize, Result<Next<'a>, Fault>) {
    let UnbufferedStatus { mut discard, state } = connection.process_tls_records(input);
    let next = match state {
        Err(error) => Err(Fault::Peer(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Next::Step),
                Some(Err(error)) => break Err(Fault::Peer(error)),
                Some(Ok(record)) => {
                    discard += record.discard;
                    add(record.payload);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(scratch, |room| data.encode(room)).map(|()| Next::Step).map_err(Fault::Encoding)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Next::Step)
        }
        Ok(ConnectionState::PeerClosed) => {
            *peer_ended = true;
            Ok(Next::Step)
        }
        Ok(ConnectionState::WriteTraffic(traffic)) => Ok(Next::Write(traffic)),
        Ok(_) => Ok(Next::Wait),
    };
    (discard, next)
}

/// Where plaintext goes.
struct Plain<'a> {
    into: &'a mut [u8],
    length: usize,
    /// Bytes without a place there.
    rest: Vec<u8>,
}

impl Plain<'_> {
    /// Move as much as possible of the rest to its place.
    fn settle(&mut self) {
        let mut rest = mem::take(&mut self.rest);
        let taken = rest.len().min(self.into.len() - self.length);
        self.add(rest.get(..taken).unwrap_or_default());
        if taken < rest.len() {
            rest.drain(..taken);
            self.rest = rest;
        }
    }

    fn add(&mut self, data: &[u8]) {
        match self.into.get_mut(self.length..self.length + data.len()) {
            Some(place) if self.rest.is_empty() => {
                place.copy_from_slice(data);
                self.length += data.len();
            }
            _ => self.rest.extend_from_slice(data),
        }
    }
}

/// Have `encode` write one record of the handshake behind the output.
fn encode(
    scratch: &mut Scratch,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Failure> {
    let mut needed = 0;
    for _ in 0..2 {
        match encode(scratch.output.room(needed)) {
            Ok(written) => {
                scratch.output.advance(written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(size)) => needed = size.required_size,
            Err(EncodeError::AlreadyEncoded) => return Ok(()),
        }
    }
    Err(Failure::new(FailureKind::Other, "a record does not fit"))
}

fn encrypt(scratch: &mut Scratch, traffic: &mut Traffic<'_>, data: &[u8]) -> Result<(), Failure> {
    data.chunks(MOST_PLACED * FRAGMENT).try_for_each(|data| {
        #[cfg(feature = "aws-lc")]
        if encrypt_placed(scratch, traffic, data) {
            return Ok(());
        }
        sealed(scratch, data.len(), |room| traffic.encrypt(data, room))
    })
}

/// Encrypt into the output itself. Returns false, and does nothing, with a suite that cannot do it, if records of the
/// handshake come first, and if the keys are exhausted.
#[cfg(feature = "aws-lc")]
fn encrypt_placed(scratch: &mut Scratch, traffic: &mut Traffic<'_>, data: &[u8]) -> bool {
    let count = data.len().div_ceil(FRAGMENT);
    scratch.output.room(data.len() + count * OVERHEAD);
    let mut empty = [0; MOST_PLACED * direct::EMPTY];
    let room = empty.get_mut(..count * direct::EMPTY).unwrap_or_default();
    direct::placed(&mut scratch.output, || traffic.encrypt(data, room)).is_ok()
}

/// Have `seal` write `length` bytes, encrypted, behind the output.
fn sealed(
    scratch: &mut Scratch,
    length: usize,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Failure> {
    let mut needed = length + (length / FRAGMENT + 1) * OVERHEAD;
    for _ in 0..2 {
        match seal(scratch.output.room(needed)) {
            Ok(written) => {
                scratch.output.advance(written);
                return Ok(());
            }
            // Records of the handshake come first.
            Err(EncryptError::InsufficientSize(size)) => needed = size.required_size,
            Err(EncryptError::EncryptExhausted) => break,
        }
    }
    Err(Failure::new(FailureKind::Other, "the keys of the connection are exhausted"))
}
