//! A small mutation fuzzer for the stable compiler, where the coverage-guided one is out of reach. It runs the same targets
//! from the same seeds, keeps what led to something new, and is deterministic for a seed and a number of executions.
//!
//! ```text
//! cargo run -p wire --profile fuzz --example fuzz -- [--seconds 20] [--seed 1] [target ...]
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Words that matter to the grammar; random bytes alone would rarely spell them.
const WORDS: [&str; 52] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    ": ",
    ";",
    ",",
    "=",
    "\"",
    "\\",
    "%",
    "%41",
    "?",
    "#",
    "@",
    "[::1]",
    "*",
    "/",
    "\0",
    "\u{7f}",
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "http://a:80/",
    "HTTP/1.0",
    "HTTP/2.0",
    "Host: a\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "gzip, chunked",
    "Connection: close\r\n",
    "Upgrade: x\r\n",
    "Expect: 100-continue\r\n",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "5;a=\"b\"\r\n",
    "ffffffffffffffff",
    "content-length:5\n",
    "keep-alive",
    "transfer-encoding:chunked\n",
    "connection:close\n",
    "connection:keep-alive\n",
    "\n\n",
    "hello",
    "18446744073709551615",
    "PROXY TCP4 ",
    " 127.0.0.1 ",
    "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
    "\x20\0\x05",
];
const KEPT: usize = 4096;
const LONGEST: usize = 4096;

/// A xorshift generator: no dependency, the same sequence everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or_default()
    }
}

fn mutate(random: &mut Random, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut data = pool[random.below(pool.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() + 1);
        let end = at + random.below((data.len() - at).min(32) + 1);
        match random.below(8) {
            0 if at < data.len() => data[at] ^= 1 << random.below(8),
            1 if at < data.len() => data[at] = u8::try_from(random.below(256)).unwrap_or_default(),
            2 => drop(data.drain(at..end)),
            3 => drop(data.splice(at..at, data[at..end].to_vec())),
            4 => data.truncate(at),
            5 => {
                let other = &pool[random.below(pool.len())];
                let from = random.below(other.len() + 1);
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ => drop(data.splice(at..end.min(at + random.below(2) * 8), WORDS[random.below(WORDS.len())].bytes())),
        }
    }
    data.truncate(LONGEST);
    data
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut seeds: Vec<_> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    seeds.push(Vec::new());
    seeds
}

/// Run one target; the input that broke it, if one did.
fn fuzz(name: &str, target: targets::Target, seed: u64, duration: Duration) -> Option<Vec<u8>> {
    let (mut random, mut pool) = (Random(seed.max(1)), seeds(name));
    let mut outcomes = HashSet::new();
    let (mut executions, start) = (0u64, Instant::now());
    let first = pool.clone();
    let mut queue = first.into_iter();
    while executions % 256 != 0 || start.elapsed() < duration {
        let data = queue.next().unwrap_or_else(|| mutate(&mut random, &pool));
        let Ok(outcome) = catch_unwind(|| target(&data)) else { return Some(data) };
        executions += 1;
        if outcomes.insert(outcome) && pool.len() < KEPT {
            pool.push(data);
        }
    }
    println!("{name}: {executions} executions, {} outcomes, nothing broken", outcomes.len());
    None
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let (seconds, seed) = (option("--seconds").unwrap_or(20), option("--seed").unwrap_or(1));
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !targets::ALL.iter().any(|(name, _)| named(name));
    let mut code = ExitCode::SUCCESS;
    for (name, target) in targets::ALL.iter().filter(|(name, _)| all || named(name)) {
        if let Some(data) = fuzz(name, *target, seed, Duration::from_secs(seconds)) {
            println!("{name}: broken by \"{}\"", data.escape_ascii());
            code = ExitCode::FAILURE;
        }
    }
    code
}
