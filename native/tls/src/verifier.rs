//! The certificates of clients: handshakes that go on whatever they show, and the verdict on them afterwards.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Accepts every certificate whose private key the client has. [`error_of`] verifies it once the handshake is complete, for
/// the connection that asks: others may shake hands between a certificate and the end of its handshake.
#[derive(Debug)]
pub(crate) struct Accepting {
    inner: Arc<dyn ClientCertVerifier>,
}

impl Accepting {
    pub(crate) fn new(inner: Arc<dyn ClientCertVerifier>) -> Self {
        Self { inner }
    }
}

/// Why a chain is not good now, if that is so.
pub(crate) fn error_of(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> Option<String> {
    let (first, rest) = chain.split_first()?;
    verifier.verify_client_cert(first, rest, UnixTime::now()).err().map(|error| text_of(&error))
}

impl ClientCertVerifier for Accepting {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Certificates between a client's and its authority, of which public authorities use one or two.
const MOST_BETWEEN: usize = 8;

/// The certificates of `chain` that lead from its first one to an authority; the first one alone if none does.
///
/// A client can send any others beside them, which prove nothing: those are left out without which the first one is still
/// good. Of more than [`MOST_BETWEEN`] none are given: each is verified once.
pub(crate) fn path<'a, 'b>(
    verifier: &dyn ClientCertVerifier,
    chain: &'a [CertificateDer<'b>],
) -> Vec<&'a CertificateDer<'b>> {
    let Some((first, rest)) = chain.split_first() else { return Vec::new() };
    let now = UnixTime::now();
    let leads = |rest: &[CertificateDer<'_>]| {
        rest.len() <= MOST_BETWEEN && verifier.verify_client_cert(first, rest, now).is_ok()
    };
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

/// One line for an error; rustls puts the names of its types into some.
pub(crate) fn text_of(error: &Error) -> String {
    use rustls::CertificateError as Bad;

    let Error::InvalidCertificate(bad) = error else { return error.to_string().replace('\n', " ") };
    let known = match bad {
        Bad::BadEncoding => "the certificate is malformed",
        Bad::Expired | Bad::ExpiredContext { .. } => "the certificate has expired",
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => "the certificate is not yet valid",
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
