//! Random connections: a client of rustls against a session, with records cut anywhere, changed, left out and made up.
//!
//! ```text
//! cargo run -p tls --profile fuzz --example fuzz -- [--seconds 20] [--first 1 | --seed 1]
//! ```
//!
//! Nothing may panic, no call may need more than bounded memory, and until something is changed both sides must get the
//! bytes that the other has sent. A failure prints the seed of its case.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "not production code")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Link, Pki, settings};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use tls::{Config, Settings, TicketPolicy, Verify};

/// A xorshift generator: the same sequence everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Begins of records that mean something.
const RECORDS: [&[u8]; 8] = [
    b"\x15\x03\x03\x00\x02\x01\x00",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x14\x03\x03\x00\x01\x01",
    b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
    b"\x16\x03\x03\x00\x00",
    b"\x17\x03\x03\x00\x00",
    b"\x17\x03\x03\xff\xff",
    b"\x16\x03\x03\x00\x05\x18\x00\x00\x01\x01",
];

fn change(random: &mut Random, records: &mut Vec<u8>) {
    let at = random.below(records.len() + 1);
    let end = at + random.below((records.len() - at).min(300) + 1);
    match random.below(6) {
        0 if at < records.len() => records[at] ^= 1 << random.below(8),
        1 => drop(records.drain(at..end)),
        2 => drop(records.splice(at..at, records[at..end].to_vec())),
        3 => records.truncate(at),
        4 => drop(records.splice(at..at, random.bytes(100))),
        _ => drop(records.splice(at..at, RECORDS[random.below(RECORDS.len())].iter().copied())),
    }
}

/// One connection. Returns whether its handshake was completed.
fn run(random: &mut Random, clients: &[Arc<ClientConfig>], configs: &[Arc<Config>]) -> bool {
    let cut = [1, 2, 5, 17, 600, 16_401, 100_000][random.below(7)];
    let client = &clients[random.below(clients.len())];
    let mut link = Link::new(client, "localhost", &configs[random.below(configs.len())], cut);
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    let (mut is_changed, mut client_ended) = (false, false);
    let changes = random.below(2) == 0;
    for _ in 0..random.below(30) + 5 {
        let before_answer = link.session.can_seal();
        match random.below(8) {
            0 | 1 if !client_ended && !link.client.is_handshaking() => {
                let data = random.bytes(if cut < 100 { 300 } else { 30_000 });
                std::io::Write::write_all(&mut link.client.writer(), &data).unwrap();
                said.extend(data);
            }
            2 | 3 if before_answer => {
                let pieces: Vec<_> = (0..random.below(4)).map(|_| random.bytes(20_000)).collect();
                if link.answer(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>()).is_ok() && link.session.is_open()
                {
                    answered.extend(pieces.concat());
                }
            }
            4 if !link.client.is_handshaking() => drop(link.client.refresh_traffic_keys()),
            5 if random.below(6) == 0 && !link.client.is_handshaking() => {
                link.client.send_close_notify();
                client_ended = true;
            }
            6 if random.below(10) == 0 => drop(link.session.finish(&mut link.scratch)),
            _ => {}
        }
        link.deliver();
        let mut records = Vec::new();
        while link.client.wants_write() && records.len() < 100_000 {
            link.client.write_tls(&mut records).unwrap();
        }
        if changes && random.below(4) == 0 {
            change(random, &mut records);
            is_changed = true;
        }
        let failed = link.feed(&records);
        assert!(is_changed || failed.is_ok() || link.client_error.is_some() || !link.session.is_open(), "{failed:?}");
        assert!(link.session.buffered() <= 200_000);
        if failed.is_err() {
            assert!(!link.session.can_seal());
            break;
        }
        assert!(said.starts_with(&link.received), "what the client has not said");
        assert!(answered.starts_with(&link.echoed) || is_changed, "what the server has not said");
    }
    if !is_changed && link.session.is_open() && link.pump().is_ok() {
        assert!(client_ended || link.received == said);
    }
    let _ = link.session.end_input();
    let _ = link.session.finish(&mut link.scratch);
    let _ = (link.session.shaken(), link.session.group(), link.session.host(), link.session.chain().len());
    link.session.is_open()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let (seconds, seed) = (option("--seconds").unwrap_or(20), option("--seed"));
    let first = option("--first").unwrap_or(1);
    let pki = Pki::new();
    let (own, client) = (pki.sign("localhost", 1), pki.sign("client", 2));
    let clients: Vec<_> = [vec![&TLS12], vec![&TLS13], vec![&TLS12, &TLS13]]
        .iter()
        .flat_map(|versions| [pki.client(versions, None), pki.client(versions, Some(&client))])
        .map(|mut client| {
            client.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(client)
        })
        .collect();
    let configs: Vec<_> = [(Verify::None, false), (Verify::Optional, false), (Verify::Required, true)]
        .into_iter()
        .map(|(verify, serves_unverified)| {
            let settings = Settings {
                verify,
                serves_unverified,
                authorities: Some(pki.authority_pem.as_bytes()),
                alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                tickets: TicketPolicy::Own,
                ..settings(&own)
            };
            Arc::new(Config::new(settings).unwrap())
        })
        .collect();
    let begin = Instant::now();
    let (mut cases, mut opened) = (0u64, 0u64);
    let mut one = seed.unwrap_or(first);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let mut random = Random(one.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let Ok(is_open) = catch_unwind(AssertUnwindSafe(|| run(&mut random, &clients, &configs))) else {
            eprintln!("tls: the case of --seed {one} fails");
            return ExitCode::FAILURE;
        };
        opened += u64::from(is_open);
        cases += 1;
        one += 1;
        if seed.is_some() {
            break;
        }
    }
    println!("tls: {cases} connections, {opened} open at their end");
    ExitCode::SUCCESS
}
