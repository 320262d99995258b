//! Session tickets (RFC 8446 section 4.6.1, RFC 5077), encrypted here, so that a server keeps no sessions.
//!
//! A ticket is the name of a key, a nonce, and the session encrypted with AES-256-GCM.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::ProducesTickets;

use crate::provider::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use crate::provider::random;

/// Tickets are written with one key for this period, and read for one more.
pub const PERIOD: Duration = Duration::from_secs(6 * 3600);

/// How long keys are used before their source is asked again.
const FRESH: Duration = Duration::from_secs(1);

const NAME: usize = 16;
const CIPHER: usize = 32;
/// Bytes of a key: its name, the key of the cipher, and bytes that only OpenSSL's form of tickets needs.
pub const KEY: usize = 80;

/// Writes no tickets: sessions are kept in memory.
#[derive(Debug)]
pub(crate) struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _ticket: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// The keys of a period.
#[derive(Clone)]
pub struct TicketKeys {
    /// The number of the period.
    pub period: u64,
    /// The key that tickets are written with.
    pub current: Box<[u8]>,
    /// The one before.
    pub before: Option<Box<[u8]>>,
}

/// Where keys come from; `None` if there are none now.
pub type KeySource = Box<dyn Fn() -> Option<TicketKeys> + Send + Sync>;

/// One key, as the cipher has it.
struct Key {
    name: [u8; NAME],
    cipher: LessSafeKey,
}

impl Key {
    fn new(material: &[u8]) -> Option<Self> {
        let name = material.first_chunk()?;
        let cipher = UnboundKey::new(&AES_256_GCM, material.get(NAME..NAME + CIPHER)?).ok()?;
        Some(Self { name: *name, cipher: LessSafeKey::new(cipher) })
    }
}

#[derive(Default)]
struct Keys {
    asked: Option<Instant>,
    period: u64,
    current: Option<Key>,
    before: Option<Key>,
}

/// Writes and reads tickets.
pub(crate) struct Tickets {
    /// Gives keys that other processes have as well; without it they are made here.
    source: Option<KeySource>,
    keys: Mutex<Keys>,
}

impl Tickets {
    pub(crate) fn new(source: Option<KeySource>) -> Self {
        Self { source, keys: Mutex::default() }
    }

    /// The keys, as of now.
    fn keys(&self) -> MutexGuard<'_, Keys> {
        let now = Instant::now();
        let lasts = if self.source.is_some() { FRESH } else { PERIOD };
        {
            let keys = self.lock();
            if keys.asked.is_some_and(|asked| now.saturating_duration_since(asked) < lasts) {
                return keys;
            }
        }
        // The source may run for long, and may come back here.
        let new = self.source.as_ref().map_or_else(own_keys, |source| source());
        let mut keys = self.lock();
        keys.renew(now, new, self.source.is_none());
        keys
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn renew(&mut self, now: Instant, new: Option<TicketKeys>, is_own: bool) {
        let before = self.asked.replace(now);
        let Some(new) = new else { return };
        if is_own {
            // A key is read for one period behind its own.
            let read = before.is_some_and(|before| now.saturating_duration_since(before) < 2 * PERIOD);
            self.before = self.current.take().filter(|_| read);
            self.current = Key::new(&new.current);
        } else if self.current.is_none() || self.period != new.period {
            self.period = new.period;
            self.current = Key::new(&new.current);
            self.before = new.before.as_deref().and_then(Key::new);
        }
    }
}

fn own_keys() -> Option<TicketKeys> {
    let mut current = vec![0; KEY];
    random(&mut current)?;
    Some(TicketKeys { period: 0, current: current.into(), before: None })
}

impl Debug for Tickets {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tickets")
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let keys = self.keys();
        let key = keys.current.as_ref()?;
        let mut ticket = Vec::with_capacity(NAME + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let room = ticket.get_mut(NAME + NONCE_LEN..)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.cipher.seal_in_place_separate_tag(nonce, Aad::from(key.name), room).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys();
        let key = [&keys.current, &keys.before].into_iter().flatten().find(|key| key.name == *name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.cipher.open_in_place(nonce, Aad::from(key.name), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(period: u64, current: u8, before: Option<u8>) -> Tickets {
        let key = |byte: u8| vec![byte; KEY].into_boxed_slice();
        Tickets::new(Some(Box::new(move || {
            Some(TicketKeys { period, current: key(current), before: before.map(key) })
        })))
    }

    #[test]
    fn tickets_are_read_in_their_period_and_the_next() {
        let ticket = shared(1, 1, None).encrypt(b"session").unwrap_or_default();
        assert_eq!(shared(1, 1, None).decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(shared(2, 2, Some(1)).decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(shared(3, 3, Some(2)).decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
            assert_eq!(shared(1, 1, None).decrypt(&broken), None);
            assert_eq!(shared(1, 1, None).decrypt(broken.get(..at).unwrap_or_default()), None);
        }
        let (own, other) = (Tickets::new(None), Tickets::new(None));
        let ticket = own.encrypt(b"session").unwrap_or_default();
        assert_eq!(own.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None);
    }

    #[test]
    fn own_keys_are_replaced_after_their_period() {
        let mut keys = Keys::default();
        let begin = Instant::now();
        let name = |key: &Option<Key>| key.as_ref().map(|key| key.name);
        keys.renew(begin, own_keys(), true);
        let first = name(&keys.current);
        keys.renew(begin + PERIOD, own_keys(), true);
        assert_eq!(name(&keys.before), first);
        assert_ne!(name(&keys.current), first);
        keys.renew(begin + PERIOD * 4, own_keys(), true);
        assert_eq!(name(&keys.before), None);
    }
}
