//! Several connections over one set of shared parts: scratch, field sections met before, a buffer for output. Each sees
//! what it would see if all that was its own; whatever happens to the others, and in whatever order.

use std::collections::HashMap;
use std::iter::zip;

use wire::Limits;
use wire::h1::sections::Number;
use wire::h1::{Connection, Event, Head, Scratch, Sections};

use super::{fingerprint, small};

/// Names and values of a request.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The objects that connections may share.
#[derive(Default)]
struct Parts {
    scratch: Scratch,
    sections: Option<Sections>,
    /// What the owner of the sections made of them, in their places.
    kept: HashMap<usize, (Number, Fields)>,
    out: Vec<u8>,
}

/// One connection and its peer.
struct Peer {
    connection: Connection,
    input: Vec<u8>,
    /// Answers are begun by one step and ended by another, so that the next request waits.
    begun: bool,
    /// The part of it that the application saw, and the output.
    seen: Vec<String>,
    written: Vec<u8>,
}

/// The first byte says which limits, how many connections, and how long the script is; then come pairs of bytes, an
/// action and its connection or size; after the script the conversations of the clients, in equal parts.
pub fn h1_shared(data: &[u8]) -> u64 {
    let [control, rest @ ..] = data else { return 0 };
    let limits = if control & 1 == 1 { small() } else { Limits::default() };
    let count = usize::from(control >> 1 & 3) + 2;
    let (script, texts) = rest.split_at(rest.len().min(usize::from(control >> 3) * 4));
    let texts: Vec<_> = texts.chunks(texts.len().div_ceil(count).max(1)).collect();
    let mut shared = Parts { sections: Some(Sections::new()), ..Parts::default() };
    let mut own: Vec<Parts> = (0..count).map(|_| Parts::default()).collect();
    let (mut peers, mut alone) = (peers(count), peers(count));
    let mut sent = vec![0; count];
    for step in script.chunks_exact(2) {
        let (kind, who, amount) = (step[0] & 15, usize::from(step[0] >> 4) % count, usize::from(step[1]));
        let text = texts.get(who).copied().unwrap_or_default();
        if kind == 15 {
            // The client is gone, and another comes with the same words.
            (peers[who], alone[who], sent[who]) = (Peer::new(), Peer::new(), 0);
            continue;
        }
        let from = sent[who];
        if kind >= 8 {
            sent[who] = text.len().min(from + amount);
        }
        let arriving = &text[from..sent[who]];
        peers[who].step(kind, arriving, &mut shared, &limits);
        alone[who].step(kind, arriving, &mut own[who], &limits);
        assert_eq!(peers[who].seen, alone[who].seen);
        assert_eq!(peers[who].written, alone[who].written);
    }
    for (together, alone) in zip(&peers, &alone) {
        assert_eq!(together.connection.awaits(), alone.connection.awaits());
        assert_eq!(together.connection.is_closing(), alone.connection.is_closing());
    }
    let outcome: Vec<_> = peers.iter().map(|peer| (peer.seen.len(), peer.connection.awaits() as u8)).collect();
    fingerprint(&outcome)
}

fn peers(count: usize) -> Vec<Peer> {
    (0..count).map(|_| Peer::new()).collect()
}

impl Peer {
    fn new() -> Self {
        Self { connection: Connection::new(), input: Vec::new(), begun: false, seen: Vec::new(), written: Vec::new() }
    }

    fn step(&mut self, kind: u8, arriving: &[u8], parts: &mut Parts, limits: &Limits) {
        match kind {
            0 => self.start(parts),
            1 | 2 => self.finish(parts, limits),
            3 => drop(self.connection.refuse(&mut parts.out, limits, 408, b"", b"late")),
            4 => self.connection.shutdown(),
            5 => self.connection.announce_close(),
            6 => {
                let _ = self.connection.switch();
            }
            7 => self.seen.push(format!("{:?}", self.connection.receive_eof(!self.input.is_empty()))),
            _ => self.input.extend_from_slice(arriving),
        }
        self.read(parts, limits);
        self.written.append(&mut parts.out);
    }

    fn read(&mut self, parts: &mut Parts, limits: &Limits) {
        let mut at = 0;
        loop {
            let input = &self.input[at..];
            let polled = match &mut parts.sections {
                None => self.connection.poll(input, &mut parts.scratch, limits),
                sections => self.connection.poll_recalling(input, &mut parts.scratch, limits, sections.as_mut()),
            };
            let is_request = matches!(&polled, Ok(progress) if progress.event == Event::Request);
            assert!(is_request || parts.scratch.is_empty(), "only a request may be in it");
            let Ok(progress) = polled else {
                self.seen.push(format!("{polled:?}"));
                let _ = self.connection.refuse(&mut parts.out, limits, 400, b"", b"bad");
                at = self.input.len();
                break;
            };
            at += progress.consumed;
            match &progress.event {
                Event::Request => {
                    self.seen.push(parts.describe(input, limits));
                    parts.scratch.clear();
                    assert!(parts.scratch.is_empty());
                }
                Event::Body { data, end } => {
                    self.seen.push(format!("{} {end}", input[data.clone()].escape_ascii()));
                }
                Event::Skipped => {}
                Event::NeedMore | Event::Busy | Event::Switched | Event::Closed => {
                    self.seen.push(format!("{:?}", progress.event));
                    break;
                }
            }
        }
        self.input.drain(..at);
    }

    fn start(&mut self, parts: &mut Parts) {
        if let Ok(mut head) = self.connection.start_response(&mut parts.out, 200, b"") {
            head.field(&mut parts.out, b"content-length", b"0").unwrap();
            self.connection.finish_head(head, &mut parts.out, None).unwrap();
            self.begun = true;
        }
    }

    fn finish(&mut self, parts: &mut Parts, limits: &Limits) {
        if !self.begun {
            self.start(parts);
        }
        if std::mem::take(&mut self.begun) {
            let _ = self.connection.finish(&mut parts.out, limits);
        }
    }
}

impl Parts {
    /// The request in the scratch, with the fields that its owner has of it.
    fn describe(&mut self, input: &[u8], limits: &Limits) -> String {
        let head = self.scratch.head();
        let read = |head: &Head| -> Fields {
            let text = |field: &wire::Field| (field.name.of(input).to_vec(), field.value.of(input).to_vec());
            head.fields.iter().map(text).collect()
        };
        let kept =
            head.memory.number().and_then(|number| self.kept.get(&number.place()).filter(|kept| kept.0 == number));
        let fields = match (head.is_recalled(), kept) {
            (false, _) => read(head),
            (true, Some((_, fields))) => fields.clone(),
            (true, None) => {
                let mut again = Head::default();
                assert!(again.parse(input, limits).is_ok());
                read(&again)
            }
        };
        // An owner that has not come to keep one, because something failed, reads those fields again.
        if let Some(number) = head.memory.number()
            && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"x-own"))
        {
            self.kept.insert(number.place(), (number, fields.clone()));
        }
        let fields = fields.iter().map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
        format!(
            "{:?} {} {} {:?} {:?} {:?} {:?} {:?}",
            head.verb,
            head.method.of(input).escape_ascii(),
            head.target.whole.of(input).escape_ascii(),
            head.target,
            head.version,
            head.body,
            (head.persistent, head.upgrades, head.expects_continue),
            fields.collect::<Vec<_>>(),
        )
    }
}
