//! Why a connection has failed.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use crate::verifier::text_of;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The peer has closed the connection without an alert.
    Closed,
    /// The peer speaks no version of TLS that is served.
    Version,
    /// The peer has no cipher suite, group or signature algorithm that is served.
    Parameters,
    /// The certificate of the client is missing, or was not accepted.
    Certificate,
    /// The peer has sent an alert: most do that because they do not accept our certificate.
    Alert,
    /// What the peer has sent is not TLS.
    NotTls,
    /// Everything else: malformed or unexpected messages, most of them.
    Other,
}

/// A failure, after which nothing more is sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind, for counting.
    pub kind: FailureKind,
    /// One line, with the name of the alert that was received or sent.
    pub text: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: &str) -> Self {
        Self { kind, text: text.to_owned() }
    }

    pub(crate) fn of(error: &Error, is_first: bool) -> Self {
        let (kind, alert) = match error {
            Error::AlertReceived(alert) => {
                return Self::new(FailureKind::Alert, &format!("the peer has sent the alert {}", name_of(*alert)));
            }
            Error::PeerIncompatible(why) => parameters(why),
            Error::NoCertificatesPresented => (FailureKind::Certificate, AlertDescription::CertificateRequired),
            Error::InvalidCertificate(bad) => (FailureKind::Certificate, alert_of(bad)),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) if is_first => {
                let alert = name_of(AlertDescription::DecodeError);
                return Self::new(FailureKind::NotTls, &format!("the peer does not speak TLS; sent the alert {alert}"));
            }
            Error::InvalidMessage(_) if is_first => (FailureKind::NotTls, AlertDescription::DecodeError),
            Error::InvalidMessage(_) => (FailureKind::Other, AlertDescription::DecodeError),
            Error::DecryptError => (FailureKind::Other, AlertDescription::BadRecordMac),
            Error::PeerSentOversizedRecord => (FailureKind::Other, AlertDescription::RecordOverflow),
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                (FailureKind::Other, AlertDescription::UnexpectedMessage)
            }
            error => return Self::new(FailureKind::Other, &text_of(error)),
        };
        Self::new(kind, &format!("{}; sent the alert {}", text_of(error), name_of(alert)))
    }

    /// The same for a peer without a version that is served: rustls has rejected something else of its hello first.
    pub(crate) fn of_version(first: &Self) -> Self {
        let alert = first.text.rsplit_once(';').map_or("", |(_, alert)| alert);
        Self { kind: FailureKind::Version, text: format!("the peer speaks TLS 1.1 at most;{alert}") }
    }
}

fn parameters(why: &PeerIncompatible) -> (FailureKind, AlertDescription) {
    match why {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => (FailureKind::Version, AlertDescription::ProtocolVersion),
        _ => (FailureKind::Parameters, AlertDescription::HandshakeFailure),
    }
}

fn alert_of(bad: &CertificateError) -> AlertDescription {
    AlertDescription::from(bad.clone())
}

/// The name of an alert, as RFC 8446 section 6 has it.
fn name_of(alert: AlertDescription) -> String {
    let Some(camel) = alert.as_str() else { return u8::from(alert).to_string() };
    let mut name = String::new();
    let mut was_small = false;
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && was_small {
            name.push('_');
        }
        was_small = !letter.is_ascii_uppercase();
        name.push(letter.to_ascii_lowercase());
    }
    name
}
