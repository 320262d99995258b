//! A server of HTTP/2 in clear text with canned answers, for h2spec, h2load and the like: no Python, one thread for
//! each connection. It reports refused requests and connections on standard error.
//!
//! ```text
//! $ cargo run -q --release -p wire --example h2_server -- 127.0.0.1:8700
//! $ curl --http2-prior-knowledge http://127.0.0.1:8700/bytes/100000
//! ```
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes |
//! | `/echo` | the body of the request, as it comes |
//! | `/trailers` | a body and a trailer |
//! | any other | `Hello, world!` |

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "not production code")]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use wire::h2::{Connection, ErrorCode, Event, Scratch, Settings, StreamId};
use wire::{AppError, Limits, Trailers};

/// Bytes put together for one write.
const AT_ONCE: usize = 1 << 16;

/// The missing part of a response body, which may be any number of zeros.
enum Body {
    Bytes(Vec<u8>),
    Zeros,
}

struct Server {
    socket: TcpStream,
    connection: Connection,
    scratch: Scratch,
    limits: Limits,
    out: Vec<u8>,
    bodies: HashMap<StreamId, Body>,
    /// The paths of requests whose bodies are still to come.
    asked: HashMap<StreamId, Vec<u8>>,
    /// Those that are not released.
    streams: Vec<StreamId>,
}

impl Server {
    fn new(socket: TcpStream) -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(Settings::default(), &mut out);
        let (scratch, limits) = (Scratch::default(), Limits::default());
        let (bodies, asked, streams) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { socket, connection, scratch, limits, out, bodies, asked, streams }
    }

    fn serve(&mut self) -> io::Result<()> {
        let (mut input, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        self.flush()?;
        loop {
            let length = self.socket.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            input.extend_from_slice(&buffer[..length]);
            let (consumed, open) = self.receive(&input);
            input.drain(..consumed);
            self.flush()?;
            if !open {
                self.socket.shutdown(std::net::Shutdown::Write)?;
                io::copy(&mut self.socket, &mut io::sink())?;
                return Ok(());
            }
        }
    }

    /// All that `input` has; how much of it is dealt with, and whether more is wanted.
    fn receive(&mut self, input: &[u8]) -> (usize, bool) {
        let mut at = 0;
        loop {
            let progress = self.connection.poll(&input[at..], &mut self.out, &mut self.scratch, &self.limits);
            let begin = at;
            at += progress.consumed;
            match progress.event {
                Event::NeedMore => return (at, true),
                Event::Closed => return (at, false),
                Event::Request { stream, end } => {
                    self.streams.push(stream);
                    let path = self.scratch.head().path().to_vec();
                    if end || path == b"/echo" {
                        self.answer(stream, &path, end).unwrap_or_else(|error| eprintln!("{error}"));
                    } else {
                        self.asked.insert(stream, path);
                    }
                }
                Event::Data { stream, data, end } => {
                    self.echo(stream, &input[begin + data.start..begin + data.end], end)
                        .unwrap_or_else(|error| eprintln!("{error}"));
                }
                Event::Refused { stream, error } => {
                    eprintln!("{error}");
                    self.asked.remove(&stream);
                    if !self.streams.contains(&stream) {
                        self.streams.push(stream);
                    }
                    let text = error.phrase().as_bytes().to_vec();
                    if self.respond(stream, error.status(), text, true).is_err() {
                        self.connection.reset(&mut self.out, stream, ErrorCode::Cancel);
                    }
                }
                Event::Reset { stream, .. } => {
                    self.bodies.remove(&stream);
                    self.asked.remove(&stream);
                }
                Event::Failed(failure) => eprintln!("{:?}: {failure}", failure.code),
                Event::Pong(_) | Event::GoAway { .. } => {}
            }
        }
    }

    fn answer(&mut self, stream: StreamId, path: &[u8], end: bool) -> Result<(), AppError> {
        let number = path.strip_prefix(b"/bytes/").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        if let Some(length) = number {
            self.head(stream, 200, length == 0)?;
            if length > 0 && self.connection.body(&mut self.out, stream, length, true)? {
                self.bodies.insert(stream, Body::Zeros);
            }
            return Ok(());
        }
        match path {
            b"/echo" => {
                self.head(stream, 200, end)?;
                self.bodies.insert(stream, Body::Bytes(Vec::new()));
            }
            b"/trailers" => {
                self.respond(stream, 200, b"body".to_vec(), false)?;
                let mut trailers = Trailers::default();
                trailers.add(b"x-checksum", b"none")?;
                self.connection.trailers(&mut self.out, &mut self.scratch, stream, &trailers)?;
            }
            _ => self.respond(stream, 200, b"Hello, world!".to_vec(), true)?,
        }
        Ok(())
    }

    fn head(&mut self, stream: StreamId, status: u16, end: bool) -> Result<(), AppError> {
        let mut head = self.connection.start_response(&mut self.scratch, stream, status)?;
        head.field(b"server", b"wire")?;
        head.field(b"content-type", b"text/plain")?;
        self.connection.finish_head(&mut self.out, &mut self.scratch, head, end)
    }

    fn respond(&mut self, stream: StreamId, status: u16, body: Vec<u8>, last: bool) -> Result<(), AppError> {
        self.head(stream, status, false)?;
        if self.connection.body(&mut self.out, stream, body.len(), last)? {
            self.bodies.insert(stream, Body::Bytes(body));
        }
        Ok(())
    }

    fn echo(&mut self, stream: StreamId, data: &[u8], end: bool) -> Result<(), AppError> {
        self.connection.consume(&mut self.out, stream, data.len());
        if end && let Some(path) = self.asked.remove(&stream) {
            return self.answer(stream, &path, true);
        }
        if let Some(Body::Bytes(body)) = self.bodies.get_mut(&stream)
            && self.connection.body(&mut self.out, stream, data.len(), end)?
        {
            body.extend_from_slice(data);
        }
        Ok(())
    }

    fn release(&mut self) {
        let Self { connection, streams, out, .. } = self;
        streams.retain(|&stream| {
            let live = connection.is_live(stream);
            if !live {
                connection.release(out, stream);
            }
            live
        });
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            let bodies = &mut self.bodies;
            let mut ended = Vec::new();
            let more = self.connection.fill(&mut self.out, AT_ONCE, |part, out| {
                match bodies.get_mut(&part.stream) {
                    Some(Body::Bytes(bytes)) => out.extend(bytes.drain(..part.length)),
                    Some(Body::Zeros) | None => out.resize(out.len() + part.length, 0),
                }
                if part.end {
                    ended.push(part.stream);
                }
            });
            for stream in ended {
                bodies.remove(&stream);
            }
            self.socket.write_all(&self.out)?;
            self.out.clear();
            if !more {
                self.release();
                return Ok(());
            }
        }
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8700".into());
    let listener = TcpListener::bind(&address)?;
    println!("{}", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        socket.set_nodelay(true)?;
        thread::spawn(move || {
            if let Err(error) = Server::new(socket).serve() {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}
