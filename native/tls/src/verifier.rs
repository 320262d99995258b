//! The certificates of clients: handshakes that go on whatever they show, and the verdict on them afterwards.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::dates;

/// The error of a chain whose authority has expired or is not yet valid. webpki reports dates of others with a context.
const AUTHORITY_NOT_VALID: Error = Error::InvalidCertificate(CertificateError::NotValidYet);

/// Certificates between a client's and its authority, of which public authorities use one or two.
const MOST_BETWEEN: usize = 8;

/// Certificates that may sign those of clients, and when they are valid.
#[derive(Debug)]
pub(crate) struct Authorities {
    store: RootCertStore,
    validity: Vec<RangeInclusive<u64>>,
}

impl Authorities {
    pub(crate) fn new() -> Self {
        Self { store: RootCertStore::empty(), validity: vec![] }
    }

    /// Add one.
    ///
    /// Errors: why it cannot be used.
    pub(crate) fn add(&mut self, der: Vec<u8>) -> Result<(), String> {
        let validity = dates::validity(&der);
        self.store.add(CertificateDer::from(der)).map_err(|error| text_of(&error))?;
        self.validity.push(validity.map_err(|_| "its dates cannot be read".to_owned())?);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Return those that are valid at `now`, and for how long they are the same ones.
    fn valid(&self, now: u64) -> (Vec<TrustAnchor<'static>>, Range<u64>) {
        let changes = || self.validity.iter().flat_map(|dates| [*dates.start(), dates.end().saturating_add(1)]);
        let since = changes().filter(|change| *change <= now).max().unwrap_or(0);
        let until = changes().filter(|change| *change > now).min().unwrap_or(u64::MAX);
        let both = self.store.roots.iter().zip(&self.validity);
        let valid = both.filter(|(_, dates)| dates.contains(&now)).map(|(anchor, _)| anchor.clone());
        (valid.collect(), since..until)
    }
}

/// Whose certificates are accepted in a handshake.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Takes all authorities for valid, as webpki does: it ignores the dates of trust anchors.
    verifier: Arc<dyn ClientCertVerifier>,
    authorities: Authorities,
    provider: Arc<CryptoProvider>,
    valid: Mutex<Valid>,
    /// Accepts every certificate whose private key the client has. [`error_of`](Self::error_of) verifies it once the
    /// handshake is complete, for the connection that asks: others may shake hands between a certificate and the end of
    /// its handshake.
    accepts_all: bool,
}

/// What also has to accept a chain.
#[derive(Clone, Debug)]
enum Also {
    /// Nothing: all authorities are valid.
    Nothing,
    /// Knows the valid ones.
    Verifier(Arc<dyn ClientCertVerifier>),
    /// None is valid.
    Nobody,
}

/// The same until an authority expires or becomes valid.
#[derive(Debug)]
struct Valid {
    period: Range<u64>,
    also: Also,
}

impl Clients {
    pub(crate) fn new(
        authorities: Authorities,
        lists: Vec<CertificateRevocationListDer<'static>>,
        provider: Arc<CryptoProvider>,
        is_optional: bool,
        accepts_all: bool,
    ) -> Result<Self, VerifierBuilderError> {
        let store = Arc::new(authorities.store.clone());
        let mut builder = WebPkiClientVerifier::builder_with_provider(store, provider.clone());
        if is_optional {
            builder = builder.allow_unauthenticated();
        }
        if !lists.is_empty() {
            builder = builder.with_crls(lists).only_check_end_entity_revocation().enforce_revocation_expiration();
        }
        // Without names of authorities, as OpenSSL asks for a certificate: these may hide the issuer of a client's.
        let verifier = builder.clear_root_hint_subjects().build()?;
        let valid = Mutex::new(Valid { period: 0..0, also: Also::Nobody });
        Ok(Self { verifier, authorities, provider, valid, accepts_all })
    }

    fn verify(&self, first: &CertificateDer<'_>, rest: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        self.verifier.verify_client_cert(first, rest, now)?;
        match self.also(now.as_secs())? {
            Also::Nothing => Ok(()),
            Also::Verifier(valid) => {
                valid.verify_client_cert(first, rest, now).map(drop).map_err(|_| AUTHORITY_NOT_VALID)
            }
            Also::Nobody => Err(AUTHORITY_NOT_VALID),
        }
    }

    fn also(&self, now: u64) -> Result<Also, Error> {
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        if !valid.period.contains(&now) {
            let (anchors, period) = self.authorities.valid(now);
            let also = if anchors.len() == self.authorities.store.roots.len() {
                Also::Nothing
            } else if anchors.is_empty() {
                Also::Nobody
            } else {
                // Without lists: whether a certificate is revoked does not depend on the rest of its chain.
                let store = Arc::new(RootCertStore { roots: anchors });
                let builder = WebPkiClientVerifier::builder_with_provider(store, self.provider.clone());
                Also::Verifier(builder.build().map_err(|error| Error::General(error.to_string()))?)
            };
            *valid = Valid { period, also };
        }
        Ok(valid.also.clone())
    }

    /// Why a chain is not good now, if that is so.
    pub(crate) fn error_of(&self, chain: &[CertificateDer<'_>]) -> Option<String> {
        let (first, rest) = chain.split_first()?;
        self.verify(first, rest, UnixTime::now()).err().map(|error| text_of(&error))
    }

    /// The certificates of `chain` that lead from its first one to an authority; the first one alone if none does.
    ///
    /// A client can send any others beside them, which prove nothing: those are left out without which the first one is
    /// still good. Of more than [`MOST_BETWEEN`] none are given: each is verified once.
    pub(crate) fn path<'a, 'b>(&self, chain: &'a [CertificateDer<'b>]) -> Vec<&'a CertificateDer<'b>> {
        let Some((first, rest)) = chain.split_first() else { return Vec::new() };
        let now = UnixTime::now();
        let leads = |rest: &[CertificateDer<'_>]| rest.len() <= MOST_BETWEEN && self.verify(first, rest, now).is_ok();
        let mut needed: Vec<CertificateDer<'b>> = if leads(rest) { rest.to_vec() } else { Vec::new() };
        let mut at = 0;
        while at < needed.len() {
            let one = needed.remove(at);
            if !leads(&needed) {
                needed.insert(at, one);
                at += 1;
            }
        }
        std::iter::once(first).chain(rest.iter().filter(|one| needed.contains(one))).collect()
    }
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.accepts_all {
            self.verify(end_entity, intermediates, now)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// One line for an error; rustls puts the names of its types into some.
pub(crate) fn text_of(error: &Error) -> String {
    use CertificateError as Bad;

    let Error::InvalidCertificate(bad) = error else { return error.to_string().replace('\n', " ") };
    let known = match bad {
        Bad::BadEncoding => "the certificate is malformed",
        Bad::Expired | Bad::ExpiredContext { .. } => "the certificate has expired",
        Bad::NotValidYet => "the authority of the certificate has expired or is not yet valid",
        Bad::NotValidYetContext { .. } => "the certificate is not yet valid",
        Bad::Revoked => "the certificate is revoked",
        Bad::UnknownIssuer => "the issuer of the certificate is unknown",
        Bad::UnknownRevocationStatus => "no revocation list covers the certificate",
        Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => "the revocation list has expired",
        Bad::BadSignature => "the signature of the certificate is wrong",
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => "the certificate is that of an issuer",
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => "the certificate is not for clients",
        _ => return error.to_string().replace('\n', " "),
    };
    known.to_owned()
}

#[cfg(all(test, feature = "aws-lc"))]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::common::Pki;
    use crate::pem::sections;
    use crate::provider::provider;

    fn clients(authorities: &str) -> Clients {
        let mut all = Authorities::new();
        for section in sections(authorities.as_bytes()).unwrap() {
            all.add(section.der).unwrap();
        }
        Clients::new(all, vec![], Arc::new(provider()), false, false).unwrap()
    }

    /// The verdict on the first day of a year, and some seconds later.
    fn verdict(clients: &Clients, leaf: &CertificateDer<'_>, year: u64, seconds: i64) -> Option<String> {
        let days = (year - 1970) * 365 + (year - 1969) / 4 - (year - 1901) / 100 + (year - 1601) / 400;
        let now = UnixTime::since_unix_epoch(Duration::from_secs((days * 86400).saturating_add_signed(seconds)));
        clients.verify_client_cert(leaf, &[], now).err().map(|error| text_of(&error))
    }

    #[test]
    fn authorities_expire_and_become_valid_while_they_are_in_use() {
        let (pki, other) = (Pki::new(), Pki::named("another"));
        let leaf = pki.sign("client", 1).der;
        let not_valid = Some("the authority of the certificate has expired or is not yet valid".to_owned());
        // Dates are written in two ways: those of 2050 and later have four digits for the year.
        for beside in [String::new(), other.authority_pem.clone(), other.between(1990, 2000)] {
            let clients = clients(&format!("{}{beside}{}", pki.between(1990, 2030), pki.between(2060, 2070)));
            for _ in 0..2 {
                assert_eq!(verdict(&clients, &leaf, 1990, -1), not_valid);
                assert_eq!(verdict(&clients, &leaf, 1990, 0), None);
                assert_eq!(verdict(&clients, &leaf, 2030, 0), None);
                assert_eq!(verdict(&clients, &leaf, 2030, 1), not_valid);
                assert_eq!(verdict(&clients, &leaf, 2060, -1), not_valid);
                assert_eq!(verdict(&clients, &leaf, 2060, 0), None);
                assert_eq!(verdict(&clients, &leaf, 2070, 1), not_valid);
            }
        }
        let clients = clients(&format!("{}{}", pki.between(1990, 2030), other.authority_pem));
        let stranger = Pki::named("a third").sign("client", 1).der;
        assert_eq!(verdict(&clients, &stranger, 2020, 0).unwrap(), "the issuer of the certificate is unknown");
        assert_eq!(verdict(&clients, &other.sign("client", 1).der, 2040, 0), None);
    }

    #[test]
    fn authorities_without_dates_are_refused() {
        let der = sections(Pki::new().between(1990, 2030).as_bytes()).unwrap().remove(0).der;
        let at = der.windows(13).position(|part| part == b"900101000000Z").unwrap();
        let mut broken = der.clone();
        *broken.get_mut(at + 2).unwrap() = b'9';
        assert_eq!(Authorities::new().add(broken).unwrap_err(), "its dates cannot be read");
        for end in 0..der.len() {
            assert!(dates::validity(der.get(..end).unwrap()).is_err());
            assert!(dates::this_update(der.get(..end).unwrap()).is_err());
        }
    }
}
