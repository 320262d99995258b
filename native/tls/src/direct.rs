//! Records of TLS 1.3, encrypted from the place of the plaintext to the place that they are sent from.
//!
//! rustls copies plaintext into a new buffer for each record, encrypts it there, and copies the record to its place, which
//! costs half as much as encryption does. Here its suites with AES-GCM have another [`MessageEncrypter`]: while [`placed`]
//! runs, it writes records behind an [`Output`], and gives rustls empty ones in their place. Keys, sequence numbers and
//! their limits remain those of rustls, so that no nonce comes twice; AWS-LC also rejects any that does not increase.

use std::cell::Cell;
use std::mem;
use std::sync::LazyLock;

use aws_lc_rs::aead::{self, AES_128_GCM, AES_256_GCM, Aad, TlsProtocolId, TlsRecordSealingKey};
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, Nonce, OutboundChunks, OutboundOpaqueMessage,
    OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm, UnsupportedOperationError, make_tls13_aad,
};
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs::ALL_CIPHER_SUITES};
use rustls::{
    CipherSuite, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite,
};

use crate::scratch::Output;

/// Bytes of the empty record that rustls gets for one that is placed: its header.
pub(crate) const EMPTY: usize = 5;
const TAG: usize = 16;

thread_local! {
    static PLACE: Cell<Option<Output>> = const { Cell::new(None) };
}

/// Run `act`, and have records of this thread with application data go behind `output`.
pub(crate) fn placed<T>(output: &mut Output, act: impl FnOnce() -> T) -> T {
    /// Gives it back, also if rustls panics.
    struct Lent<'a>(&'a mut Output);

    impl Drop for Lent<'_> {
        fn drop(&mut self) {
            *self.0 = PLACE.take().unwrap_or_default();
        }
    }

    PLACE.set(Some(mem::take(output)));
    let _lent = Lent(output);
    act()
}

/// All suites of the provider, those with AES-GCM for TLS 1.3 with records that can be placed.
pub(crate) static CIPHER_SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| ALL_CIPHER_SUITES.iter().copied().map(placing).collect());

fn placing(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let (Some(inner), algorithm) = (
        suite.tls13(),
        match suite.suite() {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => &AES_128_GCM,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => &AES_256_GCM,
            _ => return suite,
        },
    ) else {
        return suite;
    };
    let common = CipherSuiteCommon { ..inner.common };
    // Once in a process.
    let aead_alg = Box::leak(Box::new(Algorithm { inner: inner.aead_alg, algorithm }));
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite { common, aead_alg, ..*inner })))
}

/// An algorithm of rustls' provider with another encrypter.
struct Algorithm {
    inner: &'static dyn Tls13AeadAlgorithm,
    algorithm: &'static aead::Algorithm,
}

impl Tls13AeadAlgorithm for Algorithm {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        match TlsRecordSealingKey::new(self.algorithm, TlsProtocolId::TLS13, key.as_ref()) {
            Ok(key) => Box::new(Encrypter { key, iv }),
            // The key would need another length, which rustls takes from the inner algorithm.
            Err(_) => self.inner.encrypter(key, iv),
        }
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.inner.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.inner.key_len()
    }

    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.inner.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

struct Encrypter {
    key: TlsRecordSealingKey,
    iv: Iv,
}

impl Encrypter {
    fn nonce(&self, sequence: u64) -> aead::Nonce {
        aead::Nonce::assume_unique_for_key(Nonce::new(&self.iv, sequence).0)
    }

    /// Write a record with application data behind `output`.
    fn place(&mut self, output: &mut Output, plain: &[u8], sequence: u64) -> Option<()> {
        let length = plain.len() + 1 + TAG;
        // It is authenticated with the record.
        let header = make_tls13_aad(length);
        let (nonce, kind) = (self.nonce(sequence), [ContentType::ApplicationData.into()]);
        let (place, room) = output.room(EMPTY + length).split_first_chunk_mut()?;
        let (sealed, room) = room.split_at_mut_checked(plain.len())?;
        let rest = room.get_mut(..1 + TAG)?;
        *place = header;
        self.key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, sealed, &kind, rest).ok()?;
        output.advance(EMPTY + length);
        Some(())
    }
}

impl MessageEncrypter for Encrypter {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        let kind = ContentType::ApplicationData;
        if let (ContentType::ApplicationData, &OutboundChunks::Single(plain)) = (message.typ, &message.payload)
            && let Some(mut output) = PLACE.take()
        {
            let sealed = self.place(&mut output, plain, sequence);
            PLACE.set(Some(output));
            sealed.ok_or(Error::EncryptError)?;
            return Ok(OutboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, PrefixedPayload::with_capacity(0)));
        }
        let length = message.payload.len() + 1 + TAG;
        let mut payload = PrefixedPayload::with_capacity(length);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&[message.typ.into()]);
        let header = Aad::from(make_tls13_aad(length));
        self.key
            .seal_in_place_append_tag(self.nonce(sequence), header, &mut payload)
            .map_err(|_| Error::EncryptError)?;
        Ok(OutboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, payload))
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        let output = PLACE.take();
        let length = if output.is_some() { 0 } else { length + 1 + TAG };
        PLACE.set(output);
        length
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use rustls::version::TLS13;

    use super::*;
    use crate::common::{Link, Pki, settings};
    use crate::config::Config;
    use crate::provider::provider;
    use rustls::crypto::CryptoProvider;

    /// A suite whose keys are good for `limit` records.
    fn limited(suite: SupportedCipherSuite, limit: u64) -> SupportedCipherSuite {
        let inner = suite.tls13().unwrap();
        let common = CipherSuiteCommon { confidentiality_limit: limit, ..inner.common };
        SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite { common, ..*inner })))
    }

    #[test]
    fn exhausted_keys_are_replaced_among_placed_records() {
        let pki = Pki::new();
        let (own, client) = (pki.sign("localhost", 1), Arc::new(pki.client(&[&TLS13], None)));
        let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
        for suite in CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()) {
            for limit in [3, 7, 1000] {
                let cipher_suites = vec![limited(*suite, limit)];
                let config = Config::with_provider(settings(&own), CryptoProvider { cipher_suites, ..provider() });
                let mut link = Link::new(&client, "localhost", &Arc::new(config.unwrap()), usize::MAX);
                link.pump().unwrap();
                for length in [1, 16 * 1024, 16 * 1024 + 1, 50_000, 800_000] {
                    link.echoed.clear();
                    link.answer(&[data.get(..length).unwrap()]).unwrap();
                    assert_eq!(link.client_error, None);
                    assert!(link.echoed == data.get(..length).unwrap(), "{suite:?}, {limit} records, {length} bytes");
                }
            }
        }
    }

    #[test]
    fn a_panic_gives_the_output_back() {
        let mut output = Output::default();
        output.room(3).copy_from_slice(b"abc");
        output.advance(3);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            placed(&mut output, || std::panic::resume_unwind(Box::new(())));
        }));
        assert!(panicked.is_err());
        assert_eq!(output.bytes(), b"abc");
        assert!(PLACE.take().is_none());
    }
}
