//! A connection and an application that does anything in any order. The output must be one response after the other, as
//! many as there were requests, each well-formed, with nothing read after the last.

use wire::h1::response::Trailers;
use wire::h1::{Connection, Event, Scratch, Version};
use wire::{AppError, Limits};

use super::{dechunk, fingerprint, small};

/// The actions of peer and application, and the output.
struct Run<'a> {
    connection: Connection,
    scratch: Scratch,
    limits: Limits,
    /// The peer's input, and how much of it has arrived and was processed.
    input: &'a [u8],
    arrived: usize,
    used: usize,
    out: Vec<u8>,
    /// Method and version of the requests.
    requests: Vec<(bool, Version)>,
    answered: usize,
    /// The request being read, which may be incomplete or malformed, is a HEAD.
    reads_head: bool,
    begun: bool,
    broken: bool,
    /// The input that the connection waited for after each step.
    history: Vec<u8>,
}

/// The first byte says which limits, the second how long the script of the application is; behind it is the input.
pub fn h1_exchange(data: &[u8]) -> u64 {
    let [control, length, rest @ ..] = data else { return 0 };
    let (script, input) = rest.split_at(rest.len().min(usize::from(length % 64)));
    let mut run = Run {
        connection: Connection::new(),
        scratch: Scratch::default(),
        limits: if control & 1 == 1 { small() } else { Limits::default() },
        input,
        arrived: 0,
        used: 0,
        out: Vec::new(),
        requests: Vec::new(),
        answered: 0,
        reads_head: false,
        begun: false,
        broken: false,
        history: Vec::new(),
    };
    for &step in script {
        if run.broken {
            break;
        }
        run.step(step & 15, usize::from(step >> 4));
        run.history.push(run.connection.awaits() as u8);
    }
    run.check();
    fingerprint(&(run.answered, run.broken, run.requests.len(), run.out.len().checked_ilog2(), run.history))
}

impl Run<'_> {
    fn step(&mut self, kind: u8, amount: usize) {
        match kind {
            0 => drop(self.connection.send_continue(&mut self.out)),
            1 if !self.begun => {
                let fields: [(&[u8], &[u8]); 2] = [(b"link", b"</a>"), (b"content-length", b"9")];
                let _: Result<bool, AppError> = self.connection.send_interim(&mut self.out, 103, fields);
            }
            2 | 3 => self.start(amount),
            4 | 5 => self.write(amount),
            6 | 7 => self.finish(amount),
            8 => self.refuse(),
            9 => self.connection.shutdown(),
            10 => self.connection.announce_close(),
            11 => self.end_of_input(),
            12 => {
                let switched = self.connection.switch().is_ok();
                // A request that became something else gets no response.
                self.answered += usize::from(switched);
            }
            _ => self.read(amount * 16 + 1),
        }
    }

    /// More bytes arrive.
    fn read(&mut self, amount: usize) {
        self.arrived = self.input.len().min(self.arrived + amount);
        loop {
            let closing = self.connection.is_closing() && self.requests.len() > self.answered;
            let closed = self.connection.is_closed();
            let window = &self.input[self.used..self.arrived];
            let Ok(progress) = self.connection.poll(window, &mut self.scratch, &self.limits) else {
                assert!(self.connection.is_closed() && self.connection.is_closing());
                self.reads_head = is_head(window, &self.limits);
                self.used = self.arrived;
                return;
            };
            assert!(progress.consumed <= window.len());
            self.used += progress.consumed;
            match progress.event {
                Event::Request => {
                    assert!(!closed && !closing, "nothing is read behind the last request");
                    assert_eq!(self.requests.len(), self.answered, "one request at a time");
                    let head = self.scratch.head();
                    self.requests.push((head.method.of(window) == b"HEAD", head.version));
                }
                Event::Body { .. } | Event::Skipped => assert!(!closed),
                Event::NeedMore => {
                    self.reads_head = is_head(window, &self.limits);
                    return;
                }
                Event::Busy | Event::Switched | Event::Closed => return,
            }
        }
    }

    fn start(&mut self, amount: usize) {
        let status = [200, 204, 205, 304, 404, 500, 103, 999][amount % 8];
        let before = self.out.len();
        let Ok(mut head) = self.connection.start_response(&mut self.out, status, b"server: x\r\n") else {
            assert_eq!(self.out.len(), before);
            return;
        };
        let fields: [&[(&[u8], &[u8])]; 4] = [
            &[],
            &[(b"content-length", b"3"), (b"x", b"y")],
            &[(b"transfer-encoding", b"chunked")],
            &[(b"connection", b"close"), (b"content-length", b"0"), (b"trailer", b"x")],
        ];
        for (name, value) in fields[amount / 8 + usize::from(self.answered % 2 == 1) * 2] {
            head.field(&mut self.out, name, value).unwrap();
        }
        self.connection.finish_head(head, &mut self.out, None).unwrap();
        self.begun = true;
    }

    fn write(&mut self, amount: usize) {
        if let Ok(body) = self.connection.body() {
            let before = self.out.len();
            if body.write(&mut self.out, &b"0123456789abcdef"[..amount]).is_err() {
                assert_eq!(self.out.len(), before);
            }
        }
    }

    fn finish(&mut self, amount: usize) {
        if !self.begun {
            assert_eq!(self.connection.finish(&mut self.out, &self.limits), Err(AppError::State));
            return;
        }
        let mut trailers = Trailers::default();
        if amount > 0 {
            trailers.add(b"X-Sum", b" 1 ").unwrap();
            trailers.add(b"content-length", b"1").unwrap_err();
        }
        match self.connection.finish_with_trailers(&mut self.out, &self.limits, &trailers) {
            Ok(()) => self.completed(),
            // Too short: the caller aborts.
            Err(_) => self.broken = true,
        }
    }

    fn refuse(&mut self) {
        let before = self.out.len();
        match self.connection.refuse(&mut self.out, &self.limits, 400, b"", wire::status::phrase(400).as_bytes()) {
            Ok(true) => {
                if self.requests.len() == self.answered {
                    // To a malformed request.
                    self.requests.push((self.reads_head, Version::Http11));
                }
                self.completed();
                assert!(self.connection.is_closing());
            }
            said => assert!(said.is_ok() && self.out.len() == before),
        }
    }

    fn completed(&mut self) {
        self.reads_head = false;
        self.answered += 1;
        self.begun = false;
    }

    fn end_of_input(&mut self) {
        self.read(0);
        let _ = self.connection.receive_eof(self.used < self.arrived);
        self.input = &self.input[..self.arrived];
    }

    /// Check that the output has as many responses as were completed; and the one that was begun.
    fn check(&self) {
        let mut rest = self.out.as_slice();
        let mut finals = 0;
        while !rest.is_empty() {
            let mut storage = [httparse::EMPTY_HEADER; 16];
            let mut response = httparse::Response::new(&mut storage);
            let Ok(httparse::Status::Complete(length)) = response.parse(rest) else { panic!("not a whole head") };
            rest = &rest[length..];
            let status = response.code.unwrap();
            if status < 200 {
                assert!(self.requests.len() > finals, "an interim response belongs to a request");
                assert_eq!(response.headers.iter().filter(|field| field.name == "content-length").count(), 0);
                continue;
            }
            let (head, version) = self.requests[finals];
            finals += 1;
            let complete = finals <= self.answered;
            let value = |name: &str| response.headers.iter().find(|field| field.name == name).map(|field| field.value);
            let bodiless = head || matches!(status, 204 | 205 | 304);
            rest = if bodiless {
                rest
            } else if value("transfer-encoding").is_some() {
                assert_eq!(version, Version::Http11);
                after_chunks(rest, complete)
            } else if let Some(digits) = value("content-length") {
                let length = digits.iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
                assert!(rest.len() >= length || !complete);
                &rest[length.min(rest.len())..]
            } else {
                assert_eq!(finals, self.requests.len(), "nothing follows a response that ends with the connection");
                assert!(self.connection.is_closing());
                &[]
            };
        }
        assert!(finals <= self.answered + usize::from(self.begun), "no response without a request");
    }
}

fn after_chunks(rest: &[u8], complete: bool) -> &[u8] {
    let limits = Limits::default();
    match dechunk(rest, rest.len().max(1), &limits).1 {
        Ok(Some(left)) => &rest[rest.len() - left..],
        unfinished => {
            assert_eq!(unfinished, Ok(None));
            assert!(!complete);
            &[]
        }
    }
}

/// Whether a request that begins like this has the method HEAD.
fn is_head(mut input: &[u8], limits: &Limits) -> bool {
    for _ in 0..limits.empty_lines {
        input = input.strip_prefix(b"\r\n").unwrap_or(input);
    }
    input.starts_with(b"HEAD ")
}
