//! A caller of the crate without sockets: buffers, and one of the applications of the vectors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use wire::h1::{Connection, Event, Form, Scratch, Version};
use wire::{Error, Limits, Name};

type Pair<'a> = (&'a [u8], &'a [u8]);

/// A request as the application gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) raw_path: Vec<u8>,
    pub(crate) query_string: Vec<u8>,
    pub(crate) http_version: &'static str,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) complete: bool,
}

/// When the application answers, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum App {
    Echo,
    Stream,
    Ignore,
    ReadOnce,
    Empty,
    NoContent,
    NotModified,
    ResetContent,
    Close,
}

impl App {
    /// By the name the vectors use. `slow` answers later, which means nothing without a loop.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "echo" | "slow" => Self::Echo,
            "stream" => Self::Stream,
            "ignore" => Self::Ignore,
            "read-once" => Self::ReadOnce,
            "empty" => Self::Empty,
            "no-content" => Self::NoContent,
            "not-modified" => Self::NotModified,
            "reset-content" => Self::ResetContent,
            "close" => Self::Close,
            other => panic!("no application {other}"),
        }
    }

    fn answers(self, seen: &Seen) -> bool {
        seen.complete || self == Self::Ignore || (self == Self::ReadOnce && !seen.body.is_empty())
    }
}

/// A server of one connection.
pub(crate) struct Server {
    pub(crate) requests: Vec<Seen>,
    pub(crate) out: Vec<u8>,
    /// The fault of the refused request.
    pub(crate) error: Option<Error>,
    connection: Connection,
    scratch: Scratch,
    limits: Limits,
    input: Vec<u8>,
    app: App,
    in_hand: bool,
}

impl Server {
    pub(crate) fn new(app: App, limits: Limits) -> Self {
        Self {
            requests: Vec::new(),
            out: Vec::new(),
            error: None,
            connection: Connection::new(),
            scratch: Scratch::default(),
            limits,
            input: Vec::new(),
            app,
            in_hand: false,
        }
    }

    /// Bytes arrive.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.run();
    }

    /// The client closes its sending side.
    pub(crate) fn receive_eof(&mut self) {
        self.connection.receive_eof(!self.input.is_empty());
        self.run();
    }

    /// The connection has been closed, or is only read so that the client can read the last answer.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_closed() || (self.connection.is_closing() && !self.in_hand)
    }

    fn run(&mut self) {
        let mut at = 0;
        loop {
            match self.connection.poll(&self.input[at..], &mut self.scratch, &self.limits) {
                Ok(progress) => {
                    let start = at;
                    at += progress.consumed;
                    match progress.event {
                        Event::Request => self.begin(start),
                        Event::Body { data, end } => {
                            let seen = self.requests.last_mut().unwrap();
                            seen.body.extend_from_slice(&self.input[start..][data]);
                            seen.complete = end;
                        }
                        Event::Skipped => {}
                        Event::NeedMore | Event::Busy if self.answer() => {}
                        Event::NeedMore | Event::Busy | Event::Switched | Event::Closed => break,
                    }
                }
                Err(error) => {
                    self.error = Some(error);
                    let text = error.phrase().as_bytes();
                    self.connection.refuse(&mut self.out, &self.limits, error.status(), b"", text).unwrap();
                    self.in_hand = false;
                }
            }
        }
        self.input.drain(..at);
    }

    fn begin(&mut self, start: usize) {
        let (head, input) = (self.scratch.head(), &self.input[start..]);
        let mut headers: Vec<_> = head
            .fields
            .iter()
            .filter(|field| head.target.form != Form::Absolute || field.known != Name::Host)
            .map(|field| (field.name.of(input).to_ascii_lowercase(), field.value.of(input).to_vec()))
            .collect();
        if head.target.form == Form::Absolute {
            headers.insert(0, (b"host".to_vec(), head.target.authority.of(input).to_vec()));
        }
        self.requests.push(Seen {
            method: String::from_utf8(head.method.of(input).to_vec()).unwrap(),
            raw_path: head.target.effective_path(input, head.verb).to_vec(),
            query_string: head.target.query.of(input).to_vec(),
            http_version: if head.version == Version::Http10 { "1.0" } else { "1.1" },
            headers,
            body: Vec::new(),
            complete: head.body == wire::h1::BodyLength::None,
        });
        self.in_hand = true;
    }

    /// Let the application act; whether anything can be read because of it.
    fn answer(&mut self) -> bool {
        if !self.in_hand {
            return false;
        }
        if !self.app.answers(self.requests.last().unwrap()) {
            self.connection.send_continue(&mut self.out);
            return false;
        }
        self.respond().unwrap();
        self.in_hand = false;
        true
    }

    fn respond(&mut self) -> Result<(), wire::AppError> {
        let (status, fields, parts): (_, &[Pair<'_>], &[&[u8]]) = match self.app {
            App::Echo => (200, &[(b"content-type", b"application/json"), (b"content-length", b"2")], &[b"{}"]),
            App::Ignore | App::ReadOnce => (200, &[(b"content-length", b"2")], &[b"ok"]),
            App::Close => (200, &[(b"connection", b"close"), (b"content-length", b"2")], &[b"ok"]),
            App::Stream => (200, &[], &[b"first", b"second"]),
            App::Empty => (200, &[], &[b""]),
            App::NoContent => (204, &[], &[b""]),
            App::NotModified => (304, &[(b"etag", b"\"1\"")], &[b""]),
            App::ResetContent => (205, &[], &[b""]),
        };
        let mut head = self.connection.start_response(&mut self.out, status, b"server: wire\r\n")?;
        for (name, value) in fields {
            head.field(&mut self.out, name, value)?;
        }
        self.connection.finish_head(head, &mut self.out, None)?;
        if parts.len() == 1 {
            self.connection.announce_certain_close(&mut self.out, &self.limits);
        }
        for part in parts {
            self.connection.body()?.write(&mut self.out, part)?;
        }
        self.connection.finish(&mut self.out, &self.limits)
    }
}
