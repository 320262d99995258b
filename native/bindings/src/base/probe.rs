//! Answers whether this process is live and ready, in a thread that never takes the interpreter.
//!
//! The words are those of `uvicorn/metrics/loop_state.py`; the answers are those of `uvicorn/observing/probe.py`. There are
//! at most [`MOST_CLIENTS`] connections, each for [`PATIENCE`] until its request and as long behind its answer: for one
//! more the oldest is closed.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
pub(crate) use linux::ProbeResponder;

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt::Write as _;
    use std::io::{self, ErrorKind, Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use pyo3::exceptions::PyValueError;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{Bound, PyAny, PyResult, pyclass, pymethods};
    use crate::base::ffi::clocks;
    use crate::base::ffi::descriptor;
    use crate::base::ffi::words::Words;

    const STACK: usize = 128 * 1024;
    const PATIENCE: Duration = Duration::from_secs(2);
    const MOST_CLIENTS: usize = 64;
    /// Bytes of the head of a request.
    const LONGEST_HEAD: usize = 8192;
    /// Reads of one connection before others have their turn.
    const MOST_READS: usize = 16;
    /// Until the next attempt when descriptors have run out.
    const REST: Duration = Duration::from_millis(100);
    /// Reasons in one answer.
    const MOST_REASONS: usize = 8;

    const STAGE: usize = 0;
    const DUE: usize = 1;
    const LOOP: usize = 3;

    const STARTING: u64 = 1;
    /// RETIRING serves as SERVING does; later stages do not.
    const RETIRING: u64 = 3;

    const NANOSECONDS: f64 = 1e9;

    /// Why a loop is not ready; None if it is.
    fn reason(words: &Words, lateness: u64, now: u64) -> Option<String> {
        let (stage, due) = (words.get(STAGE), words.get(DUE));
        if stage <= STARTING {
            return Some("starting".to_owned());
        }
        if stage > RETIRING {
            return Some("draining".to_owned());
        }
        let late = now.saturating_sub(due);
        if due == 0 || late <= lateness {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "tenths of a second are shown")]
        let seconds = late as f64 / NANOSECONDS;
        Some(format!("late by {seconds:.1} s"))
    }

    /// Whether one of the loops is ready, and the text that says why others are not.
    fn readiness(loops: &[Words], lateness: u64, now: u64) -> (bool, String) {
        let mut reasons = Vec::new();
        for words in loops {
            if let Some(mut reason) = reason(words, lateness, now) {
                let number = words.get(LOOP);
                if number != 0 {
                    let _ = write!(reason, " in loop {number}");
                }
                reasons.push(reason);
            }
        }
        let is_ready = reasons.len() < loops.len();
        let mut text = if is_ready { "ready" } else { "not ready" }.to_owned();
        for (index, reason) in reasons.iter().take(MOST_REASONS).enumerate() {
            text.push_str(if index == 0 { ": " } else { ", " });
            text.push_str(reason);
        }
        if reasons.len() > MOST_REASONS {
            let _ = write!(text, ", and {} more", reasons.len() - MOST_REASONS);
        }
        (is_ready, text)
    }

    struct Client {
        stream: TcpStream,
        until: Instant,
        head: Vec<u8>,
        is_answered: bool,
    }

    struct Responder {
        listener: TcpListener,
        /// Its other end closes when this is to end.
        end: UnixStream,
        loops: Arc<Vec<Words>>,
        lateness: u64,
        clients: Vec<Client>,
    }

    impl Responder {
        fn serve(mut self) {
            while self.turn() {}
        }

        /// Wait until something happens, and handle it; false at the end.
        fn turn(&mut self) -> bool {
            let now = Instant::now();
            let timeout = self.clients.iter().map(|client| client.until.saturating_duration_since(now)).min();
            let timeout = timeout.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let sources = [self.end.as_fd(), self.listener.as_fd()];
            let sources = sources.into_iter().chain(self.clients.iter().map(|client| client.stream.as_fd()));
            let mut watched: Vec<_> = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)).collect();
            if poll(&mut watched, timeout.as_ref()).is_err_and(|error| error != rustix::io::Errno::INTR) {
                thread::sleep(REST);
            }
            let ready: Vec<bool> = watched.iter().map(|source| !source.revents().is_empty()).collect();
            drop(watched);
            if ready.first() == Some(&true) {
                return false;
            }
            let now = Instant::now();
            let mut ready_clients = ready.iter().skip(2);
            let (loops, lateness) = (&self.loops, self.lateness);
            self.clients.retain_mut(|client| {
                let is_ready = ready_clients.next() == Some(&true);
                client.until > now && (!is_ready || client.attend(loops, lateness))
            });
            if ready.get(1) == Some(&true) {
                self.accept();
            }
            true
        }

        fn accept(&mut self) {
            for _ in 0..MOST_CLIENTS {
                match self.listener.accept() {
                    Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                        if self.clients.len() >= MOST_CLIENTS {
                            let answered = self.clients.iter().position(|client| client.is_answered);
                            self.clients.remove(answered.unwrap_or_default());
                        }
                        let until = Instant::now() + PATIENCE;
                        let mut client = Client { stream, until, head: Vec::new(), is_answered: false };
                        // Mostly the request has arrived, too.
                        if client.attend(&self.loops, self.lateness) {
                            self.clients.push(client);
                        }
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                    Err(error) if is_of_connection(&error) => {}
                    Err(_) => {
                        thread::sleep(REST);
                        return;
                    }
                }
            }
        }
    }

    fn is_of_connection(error: &io::Error) -> bool {
        matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
    }

    impl Client {
        /// Read, and answer once the request is there; false when the connection is over.
        fn attend(&mut self, loops: &[Words], lateness: u64) -> bool {
            let mut buffer = [0; 1024];
            for _ in 0..MOST_READS {
                let data = match self.stream.read(&mut buffer) {
                    Ok(size) => buffer.get(..size).unwrap_or_default(),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                };
                if self.is_answered {
                    if data.is_empty() {
                        return false;
                    }
                    continue;
                }
                let from = self.head.len().saturating_sub(3);
                self.head.extend_from_slice(data);
                let is_whole = self.head.get(from..).is_some_and(|new| new.windows(4).any(|end| end == b"\r\n\r\n"));
                let is_long = self.head.len() >= LONGEST_HEAD;
                if (is_whole || is_long || data.is_empty()) && !self.answer(is_whole, is_long, loops, lateness) {
                    return false;
                }
            }
            true
        }

        /// Answer; false if the client does not take it.
        fn answer(&mut self, is_whole: bool, is_long: bool, loops: &[Words], lateness: u64) -> bool {
            let mut words = self.head.split(|byte| *byte == b' ');
            let method = words.next().unwrap_or_default();
            let target = words.next().unwrap_or_default();
            let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
            let (status, text) = if !is_whole {
                let status = if is_long { "431 Request Header Fields Too Large" } else { "400 Bad Request" };
                (status, String::new())
            } else if method != b"GET" && method != b"HEAD" {
                ("405 Method Not Allowed", "Only GET is served here.\n".to_owned())
            } else if path == b"/live" {
                ("200 OK", "live\n".to_owned())
            } else if path == b"/ready" {
                let (is_ready, mut text) = readiness(loops, lateness, clocks::monotonic());
                text.push('\n');
                (if is_ready { "200 OK" } else { "503 Service Unavailable" }, text)
            } else {
                ("404 Not Found", "See /live and /ready.\n".to_owned())
            };
            let body = if method == b"HEAD" { "" } else { &text };
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
                 cache-control: no-store\r\nconnection: close\r\n\r\n{body}",
                text.len()
            );
            self.is_answered = true;
            self.until = Instant::now() + PATIENCE;
            // The buffer of a new socket has room for it. Closing before the client's data ends would lose it the answer.
            let is_written = self.stream.write(response.as_bytes()).is_ok_and(|size| size == response.len());
            is_written && self.stream.shutdown(Shutdown::Write).is_ok()
        }
    }

    /// Serves `/live` and `/ready` on a duplicate of a listening socket, until `close`.
    #[pyclass(module = "uvicorn._native", frozen)]
    pub(crate) struct ProbeResponder {
        running: Mutex<Option<(JoinHandle<()>, UnixStream)>>,
        process: u32,
        /// Held here, too, so that the thread is never the one to release it.
        _loops: Arc<Vec<Words>>,
    }

    #[pymethods]
    impl ProbeResponder {
        #[new]
        #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts a list")]
        fn new(listener: i32, loops: Vec<Bound<'_, PyAny>>, lateness: f64) -> PyResult<Self> {
            let lateness =
                Duration::try_from_secs_f64(lateness).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let loops = Arc::new(loops.iter().map(Words::of).collect::<PyResult<Vec<_>>>()?);
            let listener = TcpListener::from(descriptor::duplicate(listener)?);
            listener.set_nonblocking(true)?;
            let (end, own_end) = UnixStream::pair()?;
            let responder = Responder {
                listener,
                end,
                loops: Arc::clone(&loops),
                lateness: u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX),
                clients: Vec::new(),
            };
            let thread = thread::Builder::new().name("uvicorn-probe".into()).stack_size(STACK);
            let thread = thread.spawn(move || responder.serve())?;
            let running = Mutex::new(Some((thread, own_end)));
            Ok(Self { running, process: std::process::id(), _loops: loops })
        }

        /// Stop answering. The thread does not need the interpreter, so it ends at once.
        fn close(&self) {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((thread, end)) = running else { return };
            // A fork has no such thread, but a copy of this socket.
            if std::process::id() == self.process && end.shutdown(Shutdown::Both).is_ok() {
                let _ = thread.join();
            }
        }
    }

    impl Drop for ProbeResponder {
        fn drop(&mut self) {
            self.close();
        }
    }
}

/// On other systems a thread of Python's answers.
#[cfg(not(target_os = "linux"))]
#[pyclass(module = "uvicorn._native", frozen)]
pub(crate) struct ProbeResponder {}

#[cfg(not(target_os = "linux"))]
#[pymethods]
impl ProbeResponder {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts a list")]
    fn new(_listener: i32, _loops: Vec<Bound<'_, PyAny>>, _lateness: f64) -> PyResult<Self> {
        Err(pyo3::exceptions::PyNotImplementedError::new_err("the clock that Python uses"))
    }

    #[expect(clippy::unused_self, reason = "there is no object")]
    fn close(&self) {}
}
