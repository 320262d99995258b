//! Random clients in a network that loses, repeats, cuts and changes datagrams, against two endpoints: `-- --seconds 20
//! [--first N | --seed N]`, to begin with a seed or to run its case alone.
//!
//! No panic, nothing left behind when all clients are gone, and a client with a clean network is served afterwards.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "an example")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Flight, LATENCY, Pki, Random, SERVER, World, address, bytes, settings};
use quic::{Drain, Limits, Settings};
use quinn_proto::VarInt;

/// Of the present case. TLS has random numbers of its own.
static SEED: AtomicU64 = AtomicU64::new(0);
const SECOND: Duration = Duration::from_secs(1);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let end = Instant::now() + Duration::from_secs(value("--seconds").unwrap_or(20));
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let only = value("--seed");
    let mut seed = only.or_else(|| value("--first")).unwrap_or(clock) | 1;
    std::panic::set_hook(Box::new(|panic| println!("seed {}: {panic}", SEED.load(Ordering::Relaxed))));
    let pki = Pki::new();
    let mut cases = 0;
    while Instant::now() < end && !(only.is_some() && cases > 0) {
        SEED.store(seed, Ordering::Relaxed);
        play(&pki, seed);
        seed = Random(seed).next() | 1;
        cases += 1;
    }
    println!("quic: {cases} cases");
}

/// What a hostile network does to a datagram.
fn spoil(flight: &mut Flight, random: &mut Random) -> Vec<Duration> {
    if flight.from.port() == 9 || flight.to.port() == 9 {
        return vec![LATENCY];
    }
    let delay = LATENCY + Duration::from_micros(random.next() % 20_000);
    match random.next() % 40 {
        0..3 => vec![],
        3 => vec![delay, delay * 3],
        4..7 => {
            for _ in 0..=random.next() % 4 {
                let at = random.next() as usize % flight.bytes.len();
                flight.bytes[at] ^= 1 << (random.next() % 8);
            }
            vec![delay]
        }
        7 => {
            let length = random.next() as usize % flight.bytes.len() + 1;
            flight.bytes.truncate(length);
            vec![delay]
        }
        8 => {
            let length = random.next() as usize % 200;
            flight.bytes.extend((0..length).map(|_| random.next() as u8));
            vec![delay]
        }
        _ => vec![delay],
    }
}

fn play(pki: &Pki, seed: u64) {
    let mut random = Random(seed);
    let limits = Limits {
        connections: 1 + random.next() as usize % 12,
        unvalidated: random.next() as usize % 8,
        waiting: 1 + random.next() as usize % 8,
        idle: SECOND * 5,
        ..Limits::default()
    };
    let early_data = random.is_one_of(2);
    let worker = |slot| Settings { slot, early_data, limits: limits.clone(), ..settings(pki) };
    let mut world = World::new(vec![worker(0), worker(1)]);
    world.random = Random(random.next() | 1);
    world.fate = Box::new(spoil);
    world.route = Box::new(|flight| usize::from(flight.bytes.get(1).is_some_and(|slot| *slot == 1)));
    let config = pki.client(b"h3");
    let mut clients = vec![];
    for _ in 0..60 {
        match random.next() % 10 {
            0..3 if clients.len() < 20 => {
                let port = 10 + random.next() % 1000;
                clients.push(world.connect(&config, &format!("198.51.100.1:{port}")));
            }
            3..6 => {
                if let Some(client) = clients.get(random.next() as usize % clients.len().max(1))
                    && let Some(used) = world.used.get_mut(client)
                    && used.lost().is_none()
                    && used.connection.streams().send_streams() < 50
                    && (world.is_open(*client) || world.used[client].connection.has_0rtt())
                {
                    let length = random.next() as usize % 40_000;
                    world.used(*client).try_request(&bytes(length));
                }
            }
            6 => {
                if let Some(client) = clients.get(random.next() as usize % clients.len().max(1))
                    && let Some(used) = world.used.get_mut(client)
                {
                    used.from.set_port(10 + random.next() as u16 % 1000);
                }
            }
            7 => {
                if let Some(client) = clients.get(random.next() as usize % clients.len().max(1))
                    && let Some(used) = world.used.get_mut(client)
                    && used.lost().is_none()
                {
                    used.connection.close(world.now, VarInt::from_u32(1), b"enough"[..].into());
                }
            }
            8 => {
                let server = &mut world.servers[random.next() as usize % 2];
                server.accepts = random.is_one_of(2);
                server.reads = random.is_one_of(2);
                let drain = [Drain::Off, Drain::Off, Drain::Elsewhere, Drain::Refuse][random.next() as usize % 4];
                server.endpoint.set_drain(drain);
            }
            _ => {
                let bytes = (0..random.next() % 1300).map(|_| random.next() as u8).collect();
                let flight = Flight { from: address("203.0.113.1:99"), to: address(SERVER), ecn: None, bytes };
                world.arrive(flight);
            }
        }
        world.pass(Duration::from_millis(random.next() % 60));
    }
    world.used.clear();
    for server in &mut world.servers {
        (server.accepts, server.reads) = (true, true);
        server.endpoint.set_drain(Drain::Off);
    }
    world.pass(SECOND * 30);
    for server in &world.servers {
        let endpoint = &server.endpoint;
        assert_eq!((endpoint.connections(), endpoint.waiting(), endpoint.unvalidated()), (0, 0, 0));
    }
    let client = world.connect(&config, "198.51.100.7:9");
    world.echo(client, b"hello", SECOND * 5);
}
