//! Endpoints and clients of quinn-proto, in a network and a time of their own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use common::{CODE, Flight, LATENCY, Pki, SECRET, SERVER, World, address, bytes, settings};
use quic::{Drain, Ecn, Event, ID_LENGTH, Limits, Lost, MARK, Settings};
use quinn_proto::{ConnectionError, VarInt};
use tls::{KEY, TicketKeys, TicketPolicy};

const SECOND: Duration = Duration::from_secs(1);
const CLIENT: &str = "198.51.100.1:5000";
const CONNECTION_REFUSED: u64 = 2;

/// The destination connection id of a datagram's first packet.
fn id_of(flight: &Flight) -> &[u8] {
    let bytes = &flight.bytes;
    if bytes[0] & 0x80 == 0 { &bytes[1..=ID_LENGTH] } else { &bytes[6..6 + usize::from(bytes[5])] }
}

fn is_initial(flight: &Flight) -> bool {
    flight.bytes[0] & 0xB0 == 0x80
}

fn is_retry(flight: &Flight) -> bool {
    flight.bytes[0] & 0xB0 == 0xB0
}

/// The slot that a datagram is steered to.
fn slot_of(flight: &Flight) -> Option<u8> {
    let id = id_of(flight);
    (id.len() == ID_LENGTH && id[1] == MARK ^ id[0]).then_some(id[0])
}

fn refused(lost: Option<&ConnectionError>) -> Option<u64> {
    match lost {
        Some(ConnectionError::ConnectionClosed(close)) => Some(close.error_code.into()),
        _ => None,
    }
}

#[test]
fn handshake_tells_what_both_ends_agree_on() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    let served = world.only();
    assert_eq!(served.events[0], Event::Established);
    let handshake = served.connection.handshake().unwrap();
    assert_eq!(handshake.protocol.as_deref(), Some(&b"h3"[..]));
    assert_eq!(handshake.server_name.as_deref(), Some("localhost"));
    assert_eq!((handshake.suite, handshake.resumed, handshake.chain.len()), (Some(0x1301), false, 0));
    assert_eq!(served.connection.remote(), address(CLIENT));
    assert_eq!(served.connection.local(), Some(address(SERVER).ip()));
    let id = VarInt::from_u32(CODE as u32);
    let now = world.now;
    world.used(client).connection.close(now, id, b"bye\n"[..].into());
    world.pass(SECOND);
    let over = &world.servers[0].over[0];
    assert_eq!(over.lost(), Some(&Lost::ClosedByPeer { code: CODE, reason: "bye\n".to_owned() }));
    assert_eq!(over.lost().unwrap().to_string(), "the client has closed it with code 0x100: bye\\n");
    assert_eq!(world.servers[0].endpoint.connections(), 0);
}

#[test]
fn client_without_our_protocol_gets_an_alert() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"hq"), CLIENT);
    world.pass(SECOND);
    assert_eq!(refused(world.used(client).lost()), Some(0x178));
    assert_eq!((world.servers[0].endpoint.connections(), world.servers[0].endpoint.unvalidated()), (0, 0));
}

/// Bytes, and how often one of how many datagrams is lost and late.
const TRANSFERS: [(usize, u64, u64); 5] =
    [(10_000_000, 0, 0), (1_000_000, 100, 0), (1_000_000, 20, 20), (300_000, 10, 10), (300_000, 0, 3)];

#[test]
fn everything_arrives_whatever_is_lost_and_reordered() {
    let pki = Pki::new();
    for (length, lost, late) in TRANSFERS {
        let mut world = World::one(settings(&pki));
        world.fate = Box::new(move |_, random| match (lost, late) {
            (1.., _) if random.is_one_of(lost) => vec![],
            (_, 1..) if random.is_one_of(late) => vec![LATENCY + Duration::from_micros(random.next() % 5000)],
            _ => vec![LATENCY],
        });
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        world.echo(client, &bytes(length), SECOND * 120);
        assert_eq!(world.only().received[&0].len(), length);
        let statistics = world.only().connection.statistics();
        assert!(lost == 0 || statistics.lost_packets > 0, "{statistics:?}");
        assert!(lost + late > 0 || statistics.lost_packets == 0, "{statistics:?}");
        assert!(statistics.rtt >= LATENCY * 2, "{statistics:?}");
    }
}

#[test]
fn clients_beyond_the_limit_of_unvalidated_handshakes_validate_their_address() {
    let pki = Pki::new();
    let limits = Limits { unvalidated: 2, ..Limits::default() };
    let mut world = World::one(Settings { limits, ..settings(&pki) });
    let retries = Rc::new(Cell::new(0));
    let counted = retries.clone();
    world.fate = Box::new(move |flight, _| {
        counted.set(counted.get() + usize::from(is_retry(flight)));
        // Strangers, whose addresses are not their own, never hear from us.
        if flight.to.ip() == address("203.0.113.1:1").ip() { vec![] } else { vec![LATENCY] }
    });
    let config = pki.client(b"h3");
    for port in 1..=4 {
        world.connect(&config, &format!("203.0.113.1:{port}"));
    }
    world.pass(LATENCY * 2);
    assert_eq!((world.servers[0].endpoint.connections(), retries.get()), (2, 2));
    let client = world.connect(&config, CLIENT);
    world.establish(client);
    assert_eq!(world.servers[0].endpoint.unvalidated(), 2);
    assert!(retries.get() >= 3);
    world.echo(client, b"hello", SECOND);
    // Strangers are forgotten, without a word; then no client has to validate its address.
    world.used.retain(|index, _| *index == client);
    world.pass(SECOND * 11);
    assert_eq!((world.servers[0].endpoint.connections(), world.servers[0].endpoint.unvalidated()), (1, 0));
    assert!(world.servers[0].over.iter().all(|served| served.lost() == Some(&Lost::HandshakeTimeout)));
    retries.set(0);
    let other = world.connect(&pki.client(b"h3"), "198.51.100.2:5000");
    world.establish(other);
    assert_eq!(retries.get(), 0);
}

#[test]
fn draining_endpoint_sends_clients_to_another() {
    let pki = Pki::new();
    for (secret, is_served) in [(SECRET, true), ([8; 32], false)] {
        let mut world = World::new(vec![
            settings(&pki),
            Settings { slot: 2, secret, tls: pki.config(TicketPolicy::Own), ..settings(&pki) },
        ]);
        let first = world.connect(&pki.client(b"h3"), "198.51.100.9:1");
        world.establish(first);
        world.servers[0].endpoint.set_drain(Drain::Elsewhere);
        // By slot, else to the one that accepts; but the first of the client comes too late for that.
        let late = Cell::new(true);
        world.route = Box::new(move |flight| match slot_of(flight) {
            Some(slot) => usize::from(slot) - 1,
            None => usize::from(!late.replace(false)),
        });
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        if is_served {
            world.establish(client);
            assert_eq!(world.servers[1].served.len(), 1);
            world.echo(client, b"hello", SECOND);
        } else {
            // It sees that this is not the server whose Retry it had.
            world.pass(SECOND);
            assert!(!world.is_open(client) && world.used(client).lost().is_some());
        }
        world.echo(first, b"still here", SECOND);
        assert_eq!(world.servers[0].served.len(), 1);
    }
}

#[test]
fn full_and_draining_endpoints_refuse() {
    let pki = Pki::new();
    let full = Limits { connections: 1, ..Limits::default() };
    let crowded = Limits { waiting: 0, ..Limits::default() };
    for (limits, drain, served) in
        [(full, Drain::Off, 1), (crowded, Drain::Off, 0), (Limits::default(), Drain::Refuse, 0)]
    {
        let mut world = World::one(Settings { limits, ..settings(&pki) });
        world.servers[0].endpoint.set_drain(drain);
        let clients = [CLIENT, "198.51.100.2:5000"].map(|from| {
            let client = world.connect(&pki.client(b"h3"), from);
            world.pass(SECOND);
            client
        });
        let outcomes = clients.map(|client| refused(world.used(client).lost()));
        assert_eq!(
            outcomes,
            if served == 1 { [None, Some(CONNECTION_REFUSED)] } else { [Some(CONNECTION_REFUSED); 2] }
        );
        assert_eq!(world.servers[0].endpoint.connections(), served);
    }
}

#[test]
fn strangers_get_three_times_what_they_send() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let received = Rc::new(Cell::new(0));
    let counted = received.clone();
    // Only its first datagram arrives.
    world.fate = Box::new(move |flight, _| {
        if flight.to == address(SERVER) && counted.get() == 0 {
            counted.set(flight.bytes.len());
            return vec![LATENCY];
        }
        vec![]
    });
    world.connect(&pki.client(b"h3"), CLIENT);
    world.pass(SECOND * 20);
    // quinn-proto fills the last datagram that it begins.
    let sent = world.sent[0].0;
    assert!(sent > received.get() && sent < 3 * received.get() + 1200, "{sent} for {}", received.get());
    assert!(world.sent[0].1 <= 4);
    assert_eq!(world.servers[0].endpoint.connections(), 0);
}

#[test]
fn windows_bound_what_is_not_read() {
    const KIB: usize = 1024;
    let pki = Pki::new();
    let small = Limits { stream_window: 30_000, receive_window: 50_000, ..Limits::default() };
    let shared = Limits { total_window: 4 * 128 * 1024, ..Limits::default() };
    // Clients, bytes of one stream, bytes of all streams of a client at first, and once it was read.
    for (limits, clients, one, first, then) in [
        (small, 1, 30_000, 50_000, 50_000),
        (shared, 4, 128 * KIB, 64 * KIB, 128 * KIB),
        (Limits::default(), 1, 512 * KIB, 64 * KIB, 1024 * KIB),
    ] {
        let mut world = World::one(Settings { limits, ..settings(&pki) });
        world.servers[0].reads = false;
        for port in 0..clients {
            let client = world.connect(&pki.client(b"h3"), &format!("198.51.100.1:{}", 5000 + port));
            world.establish(client);
            for _ in 0..5 {
                world.used(client).request(&bytes(2_000_000));
            }
        }
        for all in [first, then, then] {
            world.pass(SECOND * 5);
            for served in world.servers[0].served.values_mut() {
                let streams = (0..5).map(|number| number * 4);
                let lengths = streams.map(|stream| served.connection.read(stream, usize::MAX, &mut vec![]).length);
                let lengths: Vec<_> = lengths.collect();
                assert!(lengths.iter().all(|length| *length <= one), "{lengths:?}");
                let total: usize = lengths.iter().sum();
                assert!(total <= all && total > all / 2, "{lengths:?} of {all}");
            }
        }
    }
}

#[test]
fn streams_of_a_client_are_limited() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    for (dir, most) in [(quinn_proto::Dir::Bi, 100), (quinn_proto::Dir::Uni, 8)] {
        let mut streams = world.used(client).connection.streams();
        assert_eq!(std::iter::from_fn(|| streams.open(dir)).count(), most);
    }
}

#[test]
fn silent_connection_ends_after_its_time() {
    let pki = Pki::new();
    let limits = Limits { idle: SECOND * 5, ..Limits::default() };
    let mut world = World::one(Settings { limits, ..settings(&pki) });
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    world.used.clear();
    world.pass(SECOND * 4);
    assert_eq!(world.only().lost(), None);
    world.pass(SECOND * 2);
    assert_eq!(world.servers[0].over[0].lost(), Some(&Lost::IdleTimeout));
    assert_eq!(world.servers[0].endpoint.connections(), 0);
}

#[test]
fn largest_datagram_of_the_path_is_found() {
    let pki = Pki::new();
    for (most, found) in [(2000, 1400..1500), (1300, 1250..1301), (1200, 1200..1201)] {
        let mut world = World::one(settings(&pki));
        world.fate = Box::new(move |flight, _| if flight.bytes.len() > most { vec![] } else { vec![LATENCY] });
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        world.echo(client, &bytes(200_000), SECOND * 20);
        world.pass(SECOND * 5);
        let mtu = usize::from(world.only().connection.statistics().mtu);
        assert!(found.contains(&mtu), "{mtu} of {most}");
    }
}

#[test]
fn congestion_marks_slow_us_down() {
    let pki = Pki::new();
    let windows = [None, Some(Ecn::Ce)].map(|mark| {
        let mut world = World::one(settings(&pki));
        world.fate = Box::new(move |flight, _| {
            if flight.to != address(SERVER) && flight.ecn.is_some() {
                assert!(flight.ecn == Some(Ecn::Ect0));
                flight.ecn = mark.or(flight.ecn);
            }
            vec![LATENCY]
        });
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        world.echo(client, &bytes(500_000), SECOND * 60);
        let statistics = world.only().connection.statistics();
        assert_eq!(statistics.lost_packets, 0);
        statistics.congestion_window
    });
    assert!(windows[1] < windows[0] / 2, "{windows:?}");
}

#[test]
fn window_grows_while_half_of_it_is_used() {
    let pki = Pki::new();
    for (size, grows) in [(30_000, true), (5_000, false)] {
        let mut world = World::one(settings(&pki));
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        world.establish(client);
        let before = world.only().connection.statistics().congestion_window;
        for _ in 0..5 {
            world.echo(client, &bytes(size), SECOND * 5);
        }
        let after = world.only().connection.statistics().congestion_window;
        assert_eq!(after > before, grows, "{before} to {after} by {size}");
    }
}

#[test]
fn keys_are_updated_as_often_as_a_client_wants() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    for _ in 0..5 {
        world.used(client).connection.force_key_update();
        world.echo(client, &bytes(10_000), SECOND);
        world.pass(SECOND);
    }
}

#[test]
fn flood_of_packets_is_noticed_and_work_is_none() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    let floods = |world: &mut World| world.only().events.iter().filter(|event| **event == Event::Flooded).count();
    for round in 0..4000 {
        world.used(client).try_request(b"small");
        if round % 20 == 0 {
            world.pass(LATENCY * 5);
        }
    }
    world.echo(client, &bytes(3_000_000), SECOND * 30);
    assert_eq!(floods(&mut world), 0);
    for _ in 0..7000 {
        world.used(client).connection.ping();
        world.pass(Duration::from_micros(50));
    }
    assert_eq!(floods(&mut world), 1);
}

#[test]
fn flood_in_the_handshake_is_noticed_behind_it() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let ends = Rc::new(Cell::new(false));
    let may_end = ends.clone();
    // Of the server's packets only acknowledgements arrive.
    world.fate = Box::new(move |flight, _| {
        let is_lost = flight.to != address(SERVER) && !may_end.get() && flight.bytes.len() > 300;
        if is_lost { vec![] } else { vec![LATENCY] }
    });
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.pass(LATENCY * 5);
    for _ in 0..20_000 {
        world.used(client).connection.ping();
        world.pass(Duration::from_micros(50));
    }
    assert!(world.only().connection.is_handshaking());
    ends.set(true);
    world.pass(SECOND * 5);
    assert!(!world.only().connection.is_handshaking());
    for _ in 0..200 {
        world.used(client).connection.ping();
        world.pass(Duration::from_micros(50));
    }
    assert_eq!(world.only().events.iter().filter(|event| **event == Event::Flooded).count(), 1);
}

#[test]
fn forged_packets_are_no_flood_of_the_client() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let seen = Rc::new(RefCell::new(None));
    let last = seen.clone();
    world.fate = Box::new(move |flight, _| {
        if flight.to == address(SERVER) {
            last.replace(Some(flight.clone()));
        }
        vec![LATENCY]
    });
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    let mut forged = seen.take().unwrap();
    forged.bytes.iter_mut().skip(30).for_each(|byte| *byte ^= 0xFF);
    for _ in 0..30_000 {
        world.arrive(forged.clone());
        world.pass(Duration::from_micros(10));
    }
    world.echo(client, &bytes(10_000), SECOND);
    assert!(!world.only().events.contains(&Event::Flooded));
}

#[test]
fn connection_follows_its_client_to_another_address() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    for (from, size) in [
        ("198.51.100.1:6000", 100_000),
        ("203.0.113.5:6000", 100_000),
        ("203.0.113.5:7000", 20),
        ("198.51.100.1:7000", 500),
        ("198.51.100.1:8000", 0),
    ] {
        // Datagrams to the address that it had are lost.
        world.fate = Box::new(move |flight, _| {
            let is_lost = flight.to != address(SERVER) && flight.to != address(from);
            if is_lost { vec![] } else { vec![LATENCY] }
        });
        world.used(client).from = address(from);
        world.echo(client, &bytes(size), SECOND);
        world.pass(SECOND);
        assert_eq!(world.only().connection.remote(), address(from));
        assert_eq!(world.only().events.iter().filter(|event| **event == Event::Moved(address(from))).count(), 1);
        world.pass(SECOND);
    }
}

/// What a client sends while `is_on` comes from an address that is not its own.
#[derive(Clone)]
struct Forger {
    is_on: Rc<Cell<bool>>,
    /// Bytes from the address, and to it.
    bytes: Rc<Cell<(usize, usize)>>,
}

impl Forger {
    fn new(world: &mut World, forged: &'static str) -> Self {
        let forger = Self { is_on: Rc::default(), bytes: Rc::default() };
        let Self { is_on, bytes } = forger.clone();
        world.fate = Box::new(move |flight, _| {
            let (sent, got) = bytes.get();
            if flight.to == address(SERVER) && is_on.get() {
                flight.from = address(forged);
                bytes.set((sent + flight.bytes.len(), got));
            } else if flight.to == address(forged) {
                bytes.set((sent, got + flight.bytes.len()));
                return vec![];
            }
            vec![LATENCY]
        });
        forger
    }

    /// Have the client send `data` as a request from the forged address, or a `PING`.
    fn forge(&self, world: &mut World, client: usize, data: &[u8]) {
        self.is_on.set(true);
        if data.is_empty() {
            world.used(client).connection.ping();
        } else {
            world.used(client).request(data);
        }
        world.pass(Duration::from_micros(1));
        self.is_on.set(false);
    }
}

#[test]
fn claimed_address_gets_three_times_its_bytes_and_is_not_believed() {
    let pki = Pki::new();
    for (forged, more) in [("203.0.113.5:6000", 0), ("198.51.100.1:6000", 1500)] {
        for size in [0, 300, 5_000] {
            let mut world = World::one(settings(&pki));
            let client = world.connect(&pki.client(b"h3"), CLIENT);
            world.echo(client, &bytes(200_000), SECOND * 5);
            world.pass(SECOND * 5);
            let forger = Forger::new(&mut world, forged);
            for round in 0..8 {
                forger.forge(&mut world, client, &bytes(size));
                world.pass(LATENCY);
                assert_eq!(world.only().connection.target(), address(forged), "{round} of {size}");
                // The client may repeat it from its own address only later.
                if round % 2 == 0 {
                    world.used(client).connection.ping();
                }
                world.pass(SECOND * 8);
                let (sent, got) = forger.bytes.get();
                assert!(got <= 3 * sent + more, "{got} for {sent}");
                assert!(size < 5_000 || got >= 1200, "{got} for {sent}");
                assert_eq!(world.only().connection.target(), address(CLIENT), "{round} of {size}");
            }
            world.echo(client, &bytes(100_000), SECOND * 5);
            let served = world.only();
            assert_eq!(served.connection.remote(), address(CLIENT));
            assert!(!served.events.iter().any(|event| matches!(event, Event::Moved(_) | Event::Flooded)));
        }
    }
}

#[test]
fn moves_that_an_observer_forges_do_not_end_the_connection() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    let forger = Forger::new(&mut world, "203.0.113.5:6000");
    let mut moves = 0;
    for _ in 0..100 {
        forger.forge(&mut world, client, b"");
        world.pass(LATENCY);
        moves += u32::from(world.only().connection.target() != address(CLIENT));
        world.used(client).connection.ping();
        world.pass(LATENCY);
    }
    assert!((20..40).contains(&moves), "{moves}: all but the first are dropped, and one a second");
    world.echo(client, &bytes(100_000), SECOND * 5);
    let served = world.only();
    assert_eq!(served.connection.remote(), address(CLIENT));
    assert!(!served.events.iter().any(|event| matches!(event, Event::Moved(_) | Event::Flooded)));
}

#[test]
fn client_of_a_dead_worker_is_told_by_another() {
    let pki = Pki::new();
    for (secret, is_told) in [(SECRET, true), ([8; 32], false)] {
        let mut world = World::new(vec![
            settings(&pki),
            Settings { slot: 2, secret, tls: pki.config(TicketPolicy::Own), ..settings(&pki) },
        ]);
        let client = world.connect(&pki.client(b"h3"), CLIENT);
        world.establish(client);
        world.pass(SECOND);
        assert!(world.used(client).lost().is_none());
        world.servers[0].served.clear();
        world.route = Box::new(|_| 1);
        world.used(client).request(b"anybody there?");
        let sent = world.sent;
        world.pass(LATENCY * 4);
        assert_eq!(matches!(world.used(client).lost(), Some(ConnectionError::Reset)), is_told);
        // A reset is shorter than the packet that it answers.
        assert!(world.sent[0].0 - sent[0].0 < world.sent[1].0 - sent[1].0, "{sent:?} {:?}", world.sent);
    }
}

/// Keys of tickets that all workers have.
fn shared() -> TicketPolicy {
    let keys = || TicketKeys { period: 1, current: vec![1; KEY].into(), before: None };
    TicketPolicy::Shared(Box::new(move || Some(keys())))
}

#[test]
fn sessions_are_resumed_by_another_worker() {
    let pki = Pki::new();
    let mut world = World::new(vec![
        Settings { tls: pki.config(shared()), ..settings(&pki) },
        Settings { tls: pki.config(shared()), ..settings(&pki) },
    ]);
    let config = pki.client(b"h3");
    let client = world.connect(&config, CLIENT);
    world.establish(client);
    world.route = Box::new(|_| 1);
    world.used.clear();
    let client = world.connect(&config, CLIENT);
    assert!(!world.used(client).connection.has_0rtt());
    world.establish(client);
    let served = world.servers[1].served.values().next().unwrap();
    assert!(served.connection.handshake().unwrap().resumed);
}

#[test]
fn early_data_is_served_once() {
    let pki = Pki::new();
    let early = |pki: &Pki| Settings { early_data: true, ..settings(pki) };
    let mut world = World::new(vec![early(&pki), early(&pki)]);
    let config = pki.client(b"h3");
    // Index of the worker, and whether it takes early data: the second time at the same, not at another.
    let first_flight = Rc::new(RefCell::new(vec![]));
    for (index, is_early) in [(0, false), (0, true), (1, false)] {
        let kept = first_flight.clone();
        kept.borrow_mut().clear();
        world.fate = Box::new(move |flight, _| {
            if flight.to == address(SERVER) && kept.borrow().len() < 2 {
                kept.borrow_mut().push(flight.clone());
            }
            vec![LATENCY]
        });
        world.route = Box::new(move |_| index);
        world.servers.iter_mut().for_each(|server| server.served.clear());
        let client = world.connect(&config, CLIENT);
        assert_eq!(world.used(client).connection.has_0rtt(), is_early || index == 1);
        let id = is_early.then(|| world.used(client).request(b"early"));
        world.establish(client);
        let served = world.servers[index].served.values().next().unwrap();
        assert_eq!(served.early, if is_early { vec![0] } else { vec![] });
        assert_eq!(served.connection.handshake().unwrap().resumed, is_early);
        if let Some(id) = id {
            assert!(world.used(client).is_answered(id));
            // An observer has kept it, and sends it again.
            let kept = first_flight.borrow().clone();
            let now = world.now;
            world.used(client).connection.close(now, VarInt::from_u32(0), b""[..].into());
            world.pass(SECOND);
            assert!(world.servers[0].served.is_empty());
            for mut flight in kept {
                flight.from = address("203.0.113.7:7");
                world.arrive(flight);
            }
            world.pass(SECOND);
            let again: Vec<_> = world.servers[0].served.values().collect();
            assert!(
                !again.is_empty() && again.iter().all(|served| served.early.is_empty() && served.received.is_empty())
            );
        }
        world.used.clear();
    }
}

#[test]
fn early_data_from_another_address_waits_for_the_handshake() {
    let pki = Pki::new();
    for is_forged in [false, true] {
        let mut world = World::one(Settings { early_data: true, ..settings(&pki) });
        let config = pki.client(b"h3");
        let client = world.connect(&config, CLIENT);
        world.establish(client);
        world.used.clear();
        world.servers[0].served.clear();
        let other = "203.0.113.7:7";
        world.fate = Box::new(move |flight, _| {
            let is_lost = is_forged && flight.to == address(other);
            if is_lost { vec![] } else { vec![LATENCY] }
        });
        let client = world.connect(&config, other);
        assert!(world.used(client).connection.has_0rtt());
        world.used(client).request(b"early");
        world.pass(SECOND);
        let served = world.only();
        assert!(served.early.is_empty() && served.connection.has_early_data());
        assert_eq!((served.events.is_empty(), served.received.is_empty()), (is_forged, is_forged));
        assert!(is_forged || served.events[0] == Event::Established);
    }
}

#[test]
fn new_certificate_is_for_new_connections() {
    let (old, new) = (Pki::new(), Pki::new());
    let mut world = World::one(settings(&old));
    let first = world.connect(&old.client(b"h3"), CLIENT);
    world.establish(first);
    world.servers[0].endpoint.set_tls(new.config(TicketPolicy::Own)).unwrap();
    let second = world.connect(&new.client(b"h3"), "198.51.100.2:5000");
    world.establish(second);
    world.echo(first, b"still here", SECOND);
}

#[test]
fn token_of_an_earlier_connection_validates_the_address() {
    let pki = Pki::new();
    let limits = Limits { unvalidated: 0, ..Limits::default() };
    let mut world = World::one(Settings { limits, ..settings(&pki) });
    let retries = Rc::new(Cell::new(0));
    let counted = retries.clone();
    let first = Rc::new(RefCell::new(None));
    let kept = first.clone();
    world.fate = Box::new(move |flight, _| {
        counted.set(counted.get() + usize::from(is_retry(flight)));
        if flight.to == address(SERVER) && is_initial(flight) {
            kept.borrow_mut().get_or_insert_with(|| flight.clone());
        }
        vec![LATENCY]
    });
    let config = pki.client(b"h3");
    for expected in [1, 1] {
        first.take();
        let client = world.connect(&config, CLIENT);
        world.establish(client);
        assert_eq!(retries.get(), expected);
    }
    // Sent again, the token is good no more.
    world.arrive(first.take().unwrap());
    world.pass(SECOND);
    assert!(retries.get() >= 2 || world.servers[0].endpoint.connections() == 2);
}

#[test]
fn datagrams_of_strangers_leave_nothing_behind() {
    let pki = Pki::new();
    let mut world = World::one(settings(&pki));
    let client = world.connect(&pki.client(b"h3"), CLIENT);
    world.establish(client);
    let (connections, sent) = (world.servers[0].endpoint.connections(), world.sent[0]);
    for length in (0..64).chain([1199, 1200, 1452]) {
        for first in [0x00, 0x40, 0x80, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF] {
            for version in [0, 1, 0xFFFF_FFFF_u32] {
                let mut bytes = vec![first; length];
                let version = version.to_be_bytes();
                bytes.iter_mut().skip(1).zip(version).for_each(|(place, byte)| *place = byte);
                let flight = Flight { from: address("203.0.113.1:1"), to: address(SERVER), ecn: None, bytes };
                world.arrive(flight);
            }
        }
    }
    world.pass(SECOND);
    let endpoint = &world.servers[0].endpoint;
    assert_eq!((endpoint.connections(), endpoint.waiting(), endpoint.unvalidated()), (connections, 0, 0));
    // Long ones of unknown versions are answered by ours (RFC 9000 section 6), which is shorter.
    assert!(world.sent[0].0 - sent.0 < 100_000);
    world.echo(client, b"hello", SECOND);
}
