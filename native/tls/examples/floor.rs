//! What 1 MiB over TLS costs at least: the cipher, the kernel, and both, over a TCP socket of the loopback interface.
//!
//! ```text
//! cargo run --release --package tls --example floor -- [MIB] [ROUNDS]
//!
//! MIB      of each measurement (default: 2000)
//! ROUNDS   of all measurements, in alternating order; the least of each is shown (default: 5)
//! ```
//!
//! CPU time is that of the sending thread. The reader is another thread, which takes 256 KiB at once and answers each MiB with
//! a byte.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "an example"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::hint::black_box;
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, Nonce, TlsProtocolId, TlsRecordSealingKey};
use common::{Link, Pki, settings};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use rustls::version::TLS13;
use tls::Config;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const FRAGMENT: usize = 16 * KIB;
const HEADER: usize = 5;
const TAG: usize = 16;

/// How a piece is encrypted.
#[derive(Clone, Copy)]
enum Cipher {
    /// It is not.
    None,
    /// As rustls does: into a new buffer, and from there to its place.
    Copied,
    /// Copied to its place and encrypted there.
    InPlace,
    /// From its place to that of the record.
    Direct,
    /// By a session of this crate.
    Session,
}

/// How a piece is sent.
#[derive(Clone, Copy)]
enum Kernel {
    /// It is not.
    None,
    /// With these flags, which every piece of a message but the last has.
    Send(SendFlags),
}

struct Variant {
    name: String,
    cipher: Cipher,
    kernel: Kernel,
    /// Bytes of plaintext encrypted and sent at once.
    piece: usize,
    /// `SO_SNDBUF`
    buffer: Option<usize>,
}

/// The sending end.
struct Sender {
    key: TlsRecordSealingKey,
    sequence: u64,
    link: Link,
    output: Vec<u8>,
}

impl Sender {
    fn new() -> Self {
        let pki = Pki::new();
        let client = Arc::new(pki.client(&[&TLS13], None));
        let config = Arc::new(Config::new(settings(&pki.sign("localhost", 1))).unwrap());
        let mut link = Link::new(&client, "localhost", &config, usize::MAX);
        link.pump().unwrap();
        let key = TlsRecordSealingKey::new(&AES_128_GCM, TlsProtocolId::TLS13, &[7; 16]).unwrap();
        Self { key, sequence: 0, link, output: vec![0; 2 * MIB] }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.sequence.to_be_bytes());
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypt `plain` into the output; returns the length of its records.
    fn seal(&mut self, cipher: Cipher, plain: &[u8]) -> usize {
        let mut at = 0;
        for fragment in plain.chunks(FRAGMENT) {
            let length = fragment.len() + 1 + TAG;
            let nonce = self.nonce();
            let header = [23, 3, 3, (length >> 8) as u8, length as u8];
            let record = &mut self.output[at..at + HEADER + length];
            at += record.len();
            match cipher {
                Cipher::Copied => {
                    let mut sealed = Vec::with_capacity(HEADER + length);
                    sealed.extend_from_slice(&header);
                    sealed.extend_from_slice(fragment);
                    sealed.push(23);
                    let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut sealed[HEADER..]);
                    sealed.extend_from_slice(tag.unwrap().as_ref());
                    record.copy_from_slice(&sealed);
                }
                Cipher::InPlace => {
                    record[..HEADER].copy_from_slice(&header);
                    record[HEADER..HEADER + fragment.len()].copy_from_slice(fragment);
                    let (content, tag) = record[HEADER..].split_at_mut(fragment.len() + 1);
                    content[fragment.len()] = 23;
                    let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), content);
                    tag.copy_from_slice(sealed.unwrap().as_ref());
                }
                Cipher::Direct => {
                    record[..HEADER].copy_from_slice(&header);
                    let (content, rest) = record[HEADER..].split_at_mut(fragment.len());
                    let header = Aad::from(header);
                    self.key.seal_out_of_place_scatter(nonce, header, fragment, content, &[23], rest).unwrap();
                }
                Cipher::None | Cipher::Session => unreachable!(),
            }
        }
        at
    }

    /// Send one message.
    fn send(&mut self, variant: &Variant, socket: &mut TcpStream, message: &[u8]) {
        let mut from = 0;
        for piece in message.chunks(variant.piece) {
            from += piece.len();
            let records = match variant.cipher {
                Cipher::None => piece,
                Cipher::Session => {
                    let Link { session, scratch, .. } = &mut self.link;
                    scratch.output.clear();
                    session.seal(scratch, &[IoSlice::new(piece)]).unwrap();
                    scratch.output.bytes()
                }
                cipher => {
                    let length = self.seal(cipher, piece);
                    &self.output[..length]
                }
            };
            let Kernel::Send(flags) = variant.kernel else {
                black_box(records);
                continue;
            };
            let flags = if from < message.len() || flags != SendFlags::MORE { flags } else { SendFlags::empty() };
            let mut sent = 0;
            while sent < records.len() {
                sent += send(&*socket, &records[sent..], flags).unwrap();
            }
        }
        if let Kernel::Send(_) = variant.kernel {
            socket.read_exact(&mut [0]).unwrap();
        }
    }
}

/// Bytes on the socket for a message.
fn wire_length(variant: &Variant, message: usize) -> usize {
    match variant.cipher {
        Cipher::None => message,
        _ => message + message.div_ceil(FRAGMENT) * (HEADER + 1 + TAG),
    }
}

/// Microseconds of CPU for each message.
fn measure(variant: &Variant, messages: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut peer = listener.accept().unwrap().0;
    socket.set_nodelay(true).unwrap();
    if let Some(size) = variant.buffer {
        set_socket_send_buffer_size(&socket, size).unwrap();
    }
    let length = wire_length(variant, MIB);
    let reader = thread::spawn(move || {
        let mut room = vec![0; 256 * KIB];
        let mut got = 0;
        while let Ok(count @ 1..) = peer.read(&mut room) {
            got += count;
            while got >= length {
                got -= length;
                peer.write_all(b".").unwrap();
            }
        }
    });
    let message: Vec<u8> = (0..MIB).map(|at| at as u8).collect();
    let mut sender = Sender::new();
    for _ in 0..=messages / 10 {
        sender.send(variant, &mut socket, &message);
    }
    let before = clock();
    for _ in 0..messages {
        sender.send(variant, &mut socket, &message);
    }
    let used = clock().checked_sub(before).unwrap();
    drop(socket);
    reader.join().unwrap();
    used.as_secs_f64() * 1e6 / messages as f64
}

/// CPU time of this thread.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap())
}

fn main() {
    let numbers: Vec<usize> = env::args().skip(1).map(|number| number.parse().unwrap()).collect();
    let messages = numbers.first().copied().unwrap_or(2000);
    let rounds = numbers.get(1).copied().unwrap_or(5);
    let ciphers = [
        ("copied", Cipher::Copied),
        ("in place", Cipher::InPlace),
        ("direct", Cipher::Direct),
        ("session", Cipher::Session),
    ];
    let pieces = [16, 48, 64, 80, 112, 256, 1024].map(|kib| kib * KIB);
    let kernels = [("sent", Kernel::Send(SendFlags::empty())), ("sent, more follows", Kernel::Send(SendFlags::MORE))];
    let mut variants = vec![];
    for piece in pieces {
        for (cipher_name, cipher) in [&[("plain", Cipher::None)], &ciphers[..]].concat() {
            for (kernel_name, kernel) in [&[("not sent", Kernel::None)], &kernels[..]].concat() {
                let name = format!("{cipher_name}, {kernel_name}");
                variants.push(Variant { name, cipher, kernel, piece, buffer: None });
            }
        }
    }
    for buffer in [256, 4096].map(|kib| kib * KIB) {
        let name = format!("plain, sent, SO_SNDBUF {} KiB", buffer / KIB);
        variants.push(Variant { name, cipher: Cipher::None, kernel: kernels[0].1, piece: MIB, buffer: Some(buffer) });
    }
    let mut least = vec![f64::INFINITY; variants.len()];
    for _ in 0..rounds {
        for (variant, least) in variants.iter().zip(&mut least) {
            *least = least.min(measure(variant, messages));
        }
    }
    for (variant, least) in variants.iter().zip(least) {
        println!("{least:7.1} us  {:5} KiB  {}", variant.piece / KIB, variant.name);
    }
}
