//! HTTP/3 connections: any clients and applications, any cut of the input, any sharing of the scratch, and clients that refer
//! to entries of their table before those have come.

use wire::Limits;
use wire::h3::Settings;
use wire::qpack::{Decoded, Decoder};

use super::support_h3::{App, Server, Step, data, frame, hello, take, varint};
use super::{fingerprint, small};

const SETTINGS: Settings = Settings { streams: 4, fields: 400, table: 400, blocked: 2, connect_protocol: true };

/// A client that refers to entries at once, and sends them later.
struct Client {
    next: u64,
    entries: Vec<Vec<u8>>,
    /// Instructions that are not sent.
    instructions: Vec<u8>,
    /// Reads what the server sends: how much of its encoder stream, and of each request stream.
    decoder: Decoder,
    read: usize,
    at: Vec<(u64, usize)>,
}

impl Client {
    fn new() -> Self {
        // A type, and a capacity of 400 bytes.
        let instructions = vec![0x02, 0x3f, 0xf1, 0x02];
        Self { next: 0, entries: Vec::new(), instructions, decoder: Decoder::new(300), read: 1, at: Vec::new() }
    }

    fn request(&mut self, method: u8, value: &[u8]) -> Vec<u8> {
        // Nine entries fit, so that none is ever evicted.
        if self.entries.len() < 9 && value.len() < 8 && !self.entries.iter().any(|entry| entry == value) {
            self.entries.push(value.to_vec());
            self.instructions.extend_from_slice(&[0x43, b'x', b'-', b'v', u8::try_from(value.len()).unwrap()]);
            self.instructions.extend_from_slice(value);
        }
        let found = self.entries.iter().position(|entry| entry == value);
        let required = found.map_or(0, |found| u8::try_from(found).unwrap() + 1);
        // Entries are counted from the end of those that are required, 2 * 12 of which the prefix can tell apart.
        let mut section = match required {
            0 => vec![0, 0],
            required => vec![required % 24 + 1, 0],
        };
        section.extend_from_slice(&[0xc0 | method, 0xd7, 0xc1, 0x50, 1, b'h']);
        if required > 0 {
            section.push(0x80);
        }
        frame(1, &section)
    }

    /// Read the server's output, as far as it has come.
    fn read(&mut self, server: &Server, sections: bool) {
        let encoder = &server.own[1];
        while let Some((length, _)) = self.decoder.instruction(&encoder[self.read..]).unwrap() {
            self.read += length;
        }
        if !sections {
            return;
        }
        for (&stream, out) in &server.out {
            let place = self.at.iter().position(|&(other, _)| other == stream).unwrap_or_else(|| {
                self.at.push((stream, 0));
                self.at.len() - 1
            });
            let mut rest = &out[self.at[place].1..];
            while !rest.is_empty() {
                let (kind, length) = (take(&mut rest), usize::try_from(take(&mut rest)).unwrap());
                let (payload, behind) = rest.split_at(length);
                rest = behind;
                if kind == 1 {
                    let decoded = self.decoder.decode(stream, payload, usize::MAX, |_| {});
                    assert!(matches!(decoded, Ok(Decoded::Whole(_))), "{decoded:?}");
                }
            }
            self.at[place].1 = out.len();
        }
    }

    /// Bytes of the client's, chosen by `what`.
    fn send(&mut self, what: u8, which: u8, bytes: &[u8]) -> Vec<Step> {
        let stream = self.next.saturating_sub(4 * u64::from(1 + (which & 3)));
        let on = |stream, data: Vec<u8>, end| vec![Step::Bytes { stream, data, end }];
        match what {
            0 | 1 => {
                let request = self.request(if what == 0 { 17 } else { 20 }, bytes);
                self.next += 4;
                on(self.next - 4, request, what == 0)
            }
            2 => on(stream, data(bytes), which & 4 != 0),
            3 => on(stream, frame(1, &[&[0, 0], bytes].concat()), which & 4 != 0),
            4 | 5 => {
                let most = self.instructions.len().min(usize::from(which));
                on(6, self.instructions.drain(..most).collect(), false)
            }
            6 => {
                let known = [0, 1, 3, 4, 5, 7, 0xd, 0x21, 0xf_0700, 2];
                on(stream, frame(known[usize::from(which >> 4) % known.len()], bytes), which & 8 != 0)
            }
            7 => {
                let known = [3, 7, 0xd, 0x21, 0xf_0700, 0xf_0700, 0xf_0701, 4];
                let payload = if which & 1 == 1 { bytes.to_vec() } else { [&varint(stream), bytes].concat() };
                on(2, frame(known[usize::from(which >> 4) % known.len()], &payload), false)
            }
            8 if which & 1 == 1 => vec![Step::Reset { stream }],
            8 => vec![Step::Stop { stream }],
            // The control stream, or one of an unknown type: an encoder stream that says anything may evict what a blocked
            // section needs, which is seen or not as the input is cut.
            9 if which & 1 == 1 => on(2, bytes.to_vec(), which & 8 != 0),
            9 => {
                let first = bytes.first().map(|first| first | 0x20);
                let bytes = first.into_iter().chain(bytes.iter().copied().skip(1)).collect();
                on(14 + 4 * u64::from(which & 7), bytes, which & 8 != 0)
            }
            10 => {
                let output = self.decoder.output().to_vec();
                self.decoder.unwritten().clear();
                on(10, output, false)
            }
            _ => on(stream, bytes.to_vec(), which & 4 != 0),
        }
    }
}

/// The application's action on one of its streams.
fn act(server: &mut Server, what: u8, which: usize, amount: usize) {
    const NAMES: [&[u8]; 4] = [b"server", b"content-type", b"vary", b"x-amount"];
    let number = server.ids.keys().nth(which % server.ids.len().max(1)).copied();
    let Some(stream) = number.and_then(|number| server.ids.get(&number)).copied() else { return };
    let (connection, scratch) = (&mut server.connection, &mut server.scratch);
    let live = connection.is_live(stream);
    let out = server.out.entry(stream.number()).or_default();
    match what {
        0 | 1 => {
            if let Ok(mut head) = connection.start_response(scratch, stream, 200) {
                let value = vec![b'a' + amount as u8 % 4; amount];
                head.field(NAMES[which & 3], &value).unwrap();
                head.field(NAMES[which >> 2 & 3], &value).unwrap();
                connection.finish_head(out, scratch, head, amount == 1).unwrap();
            }
        }
        2 | 3 => {
            if connection.body(out, stream, amount * 8, amount & 1 == 1).unwrap_or(false) {
                out.resize(out.len() + amount * 8, b'z');
            }
            connection.ready(stream);
        }
        4 => drop(connection.interim(out, scratch, stream, 103, [(&b"link"[..], &b"<a>"[..])])),
        5 => {
            while let Some(turn) = connection.turn() {
                connection.sent(turn.stream, amount.min(turn.most), false, which & 1 == 1);
            }
            if connection.has_ended(stream) {
                connection.complete(stream);
            }
        }
        6 => {
            connection.consume(amount, 1);
            connection.pass(amount as u64 & 1);
            if which > 250 {
                connection.announce_end();
            }
            if which > 254 {
                connection.end();
            }
        }
        _ => {
            assert_eq!(connection.reset(stream), live);
            server.kept.remove(&stream.number());
            connection.release(stream);
        }
    }
    assert!(live || !connection.is_live(stream));
}

/// What a server has seen, and said: all but how its acknowledgements were grouped.
fn seen(server: &Server) -> impl PartialEq + std::fmt::Debug + '_ {
    let held = server.connection.held();
    (&server.seen, &server.out, &server.resets, &server.stopped, server.failure, &server.own[..2], held)
}

/// The first byte says which limits; then come steps of three bytes and what they say: what, on which stream, how many bytes
/// follow. Two connections share a scratch; one gets its input as it comes, the other byte by byte.
pub fn h3_connection(data: &[u8]) -> u64 {
    let [control, rest @ ..] = data else { return 0 };
    let mut rest = rest;
    let limits = if control & 1 == 1 { small() } else { Limits::default() };
    let (mut client, mut one, mut other) =
        (Client::new(), Server::new(App::Silent, SETTINGS), Server::new(App::Silent, SETTINGS));
    (one.limits, other.limits) = (limits.clone(), limits);
    let begin = Step::Bytes { stream: 2, data: hello(&[(1, 300), (7, 2)]), end: false };
    for server in [&mut one, &mut other] {
        server.step(&begin);
        server.step(&Step::Bytes { stream: 10, data: vec![0x03], end: false });
    }
    client.decoder.output();
    client.decoder.unwritten().clear();
    let mut outcome = Vec::new();
    while let [what, which, length, behind @ ..] = rest {
        let (data, behind) = behind.split_at(behind.len().min(usize::from(*length) % 64));
        rest = behind;
        if what & 16 == 0 {
            for step in client.send(what & 15, *which, data) {
                one.step(&step);
                std::mem::swap(&mut one.scratch, &mut other.scratch);
                match step {
                    Step::Bytes { stream, data, end } if !data.is_empty() => {
                        let last = data.len() - 1;
                        for (at, byte) in data.into_iter().enumerate() {
                            other.step(&Step::Bytes { stream, data: vec![byte], end: end && at == last });
                        }
                    }
                    step => other.step(&step),
                }
            }
        } else {
            for server in [&mut one, &mut other] {
                act(server, what & 7, usize::from(*which), data.len());
                server.write();
            }
        }
        // What else came with the mistake that ended a connection may have been dealt with or not.
        assert_eq!(one.failure.is_some(), other.failure.is_some());
        assert!(one.failure.is_some() || seen(&one) == seen(&other), "{:?} and {:?}", seen(&one), seen(&other));
        client.read(&one, what & 32 != 0);
        outcome.push((what & 31, one.seen.len(), one.resets.len(), one.kept.len()));
        if one.failure.is_some() {
            break;
        }
    }
    client.read(&one, true);
    fingerprint(&(outcome, one.failure.map(|failure| failure.reason)))
}
