//! The settings of connections: certificates by host name, versions, suites, client certificates, tickets.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::dates::this_update;
use crate::hello::Hello;
use crate::key;
use crate::pem::sections;
use crate::provider::{cipher_suites, provider};
use crate::tickets::{KeySource, NoTickets, Tickets};
use crate::verifier::{Authorities, Clients, text_of};

/// Sessions that are kept for early data, of about 2 KiB each.
const EARLY_DATA_SESSIONS: usize = 4096;

/// One certificate and its private key.
pub struct Certificate<'a> {
    /// The name that it is for, in lower case, or `*.` and a name; `None` for clients of all other names.
    pub host: Option<String>,
    /// The chain in PEM, the server's own certificate first.
    pub chain: &'a [u8],
    /// The private key in PEM.
    pub key: &'a [u8],
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// They are not asked for any.
    None,
    /// They may show one.
    Optional,
    /// They must show one.
    Required,
}

/// What session tickets are encrypted with.
pub enum TicketPolicy {
    /// No session is resumed.
    None,
    /// Keys of this configuration, replaced every [`PERIOD`](crate::PERIOD).
    Own,
    /// Keys that others have as well.
    Shared(KeySource),
}

/// The settings, as they are given.
pub struct Settings<'a> {
    /// One of them has no host.
    pub certificates: Vec<Certificate<'a>>,
    /// Decrypts the private keys.
    pub password: Option<&'a [u8]>,
    /// The protocols of ALPN, in the order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// The lowest and the highest version, as a record has them: 0x0303 is TLS 1.2.
    pub versions: (u16, u16),
    /// The IANA numbers of suites in the order of preference; `None` for all.
    pub suites: Option<Vec<u16>>,
    /// Whether clients show certificates.
    pub verify: Verify,
    /// Certificates in PEM that may sign those of clients.
    pub authorities: Option<&'a [u8]>,
    /// Revocation lists in PEM.
    pub revoked: Option<&'a [u8]>,
    /// A handshake goes on if the certificate of a client cannot be verified.
    pub serves_unverified: bool,
    /// How sessions are resumed.
    pub tickets: TicketPolicy,
}

/// The settings, ready for connections.
#[derive(Debug)]
pub struct Config {
    with_alpn: Arc<ServerConfig>,
    /// For clients that offer none of our protocols: they are served without one (RFC 7301 section 3.2 has an alert).
    without_alpn: Arc<ServerConfig>,
    hosts: Arc<Hosts>,
    /// Verifies the certificates of clients, if they are asked for any.
    verifier: Option<Arc<Clients>>,
    /// Handshakes go on without that.
    serves_unverified: bool,
    speaks_tls13: bool,
}

impl Config {
    /// Build the settings.
    ///
    /// Errors: a sentence without a full stop that says which part does not fit, or is not supported.
    pub fn new(settings: Settings<'_>) -> Result<Self, String> {
        Self::with_provider(settings, provider())
    }

    /// The same with another provider of cryptography.
    pub(crate) fn with_provider(settings: Settings<'_>, mut provider: CryptoProvider) -> Result<Self, String> {
        if let Some(wanted) = &settings.suites {
            let find = |number: &u16| cipher_suites().iter().find(|suite| u16::from(suite.suite()) == *number);
            provider.cipher_suites = wanted.iter().filter_map(find).copied().collect();
        }
        let provider = Arc::new(provider);
        let versions = versions(settings.versions)?;
        let hosts = Arc::new(Hosts::new(&settings, &provider)?);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|_| "none of the cipher suites fits the versions of TLS".to_owned())?;
        let serves_unverified = settings.serves_unverified;
        let verifier = if settings.verify == Verify::None { None } else { Some(verifier(&settings, provider)?) };
        let in_handshakes = match &verifier {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(verifier) => verifier.clone(),
        };
        let mut config = builder.with_client_cert_verifier(in_handshakes).with_cert_resolver(hosts.clone());
        config.ignore_client_order = true;
        // Tickets are all that is resumed by, so that nothing is kept, and a stolen page of memory has no sessions.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match settings.tickets {
            TicketPolicy::None => config.send_tls13_tickets = 0,
            TicketPolicy::Own => config.ticketer = Arc::new(Tickets::new(None)),
            TicketPolicy::Shared(source) => config.ticketer = Arc::new(Tickets::new(Some(source))),
        }
        let without_alpn = Arc::new(config.clone());
        config.alpn_protocols = settings.alpn;
        let speaks_tls13 = versions.contains(&&TLS13);
        Ok(Self { with_alpn: Arc::new(config), without_alpn, hosts, verifier, serves_unverified, speaks_tls13 })
    }

    /// The settings for a client with this hello.
    pub(crate) fn select(&self, hello: &Hello) -> Arc<ServerConfig> {
        let ours = &self.with_alpn.alpn_protocols;
        let is_shared = hello.protocols.iter().any(|name| ours.contains(name));
        if is_shared { self.with_alpn.clone() } else { self.without_alpn.clone() }
    }

    /// The settings for QUIC (RFC 9001): TLS 1.3, and one of `protocols`, without which a client gets an alert.
    ///
    /// With `early_data` clients that come again may send data in their first flight. Each ticket is good once, and
    /// only where it was made, so that no observer can repeat such data: sessions are kept in memory, and those of
    /// other workers are not resumed.
    ///
    /// Errors: a sentence without a full stop that says which setting does not fit.
    pub fn for_quic(&self, protocols: &[Vec<u8>], early_data: bool) -> Result<Arc<ServerConfig>, String> {
        let mut config = ServerConfig::clone(&self.without_alpn);
        config.alpn_protocols = protocols.to_vec();
        if !self.speaks_tls13 {
            return Err("QUIC needs TLS 1.3".to_owned());
        }
        let suites = &config.crypto_provider().cipher_suites;
        if !suites.iter().any(|suite| suite.tls13().is_some_and(|suite| suite.quic.is_some())) {
            return Err("QUIC needs a cipher suite of TLS 1.3".to_owned());
        }
        if early_data && config.send_tls13_tickets > 0 {
            config.max_early_data_size = u32::MAX;
            config.session_storage = ServerSessionMemoryCache::new(EARLY_DATA_SESSIONS);
            config.ticketer = Arc::new(NoTickets);
            // Each costs memory, and clients rarely open several connections at once.
            config.send_tls13_tickets = 1;
        }
        Ok(Arc::new(config))
    }

    /// The certificates of `chain` that lead from its first one to an authority; the first one alone if none does.
    pub fn path<'a, 'b>(&self, chain: &'a [CertificateDer<'b>]) -> Vec<&'a CertificateDer<'b>> {
        self.verifier.as_ref().map_or_else(Vec::new, |verifier| verifier.path(chain))
    }

    /// Why a chain is not good now, if that is so and it is served nevertheless.
    pub fn error_of(&self, chain: &[CertificateDer<'_>]) -> Option<String> {
        self.verifier.as_ref().filter(|_| self.serves_unverified)?.error_of(chain)
    }

    /// The key of the certificate for `server_name`: as it was given; `None` if it is the one of all other names.
    pub fn host_of(&self, server_name: Option<&str>) -> Option<&str> {
        self.hosts.find(server_name).map(|(host, _)| host.as_str())
    }
}

fn versions((lowest, highest): (u16, u16)) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let known = [&TLS13, &TLS12];
    let found: Vec<_> =
        known.into_iter().filter(|known| (lowest..=highest).contains(&u16::from(known.version))).collect();
    if found.is_empty() {
        return Err("only TLS 1.2 and 1.3 are supported".to_owned());
    }
    Ok(found)
}

fn verifier(settings: &Settings<'_>, provider: Arc<CryptoProvider>) -> Result<Arc<Clients>, String> {
    let mut authorities = Authorities::new();
    let text = settings.authorities.unwrap_or_default();
    for section in sections(text).ok_or("the file of authorities is malformed")? {
        if section.is_certificate() {
            let added = authorities.add(section.der);
            added.map_err(|error| format!("an authority cannot be used: {error}"))?;
        }
    }
    if authorities.is_empty() {
        return Err("client certificates need authorities to verify them".to_owned());
    }
    let lists = settings.revoked.map_or(Ok(vec![]), lists)?;
    let is_optional = settings.verify == Verify::Optional;
    let clients = Clients::new(authorities, lists, provider, is_optional, settings.serves_unverified);
    clients.map(Arc::new).map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(_) => "it cannot read the lists of ssl_crl".to_owned(),
        error => format!("client certificates cannot be verified: {error}"),
    })
}

/// The revocation lists in `text`, the newest first: webpki uses the first list of an authority.
fn lists(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let mut lists = sections(text).ok_or("the file of revocation lists is malformed")?;
    lists.retain(|section| section.label == "X509 CRL");
    if lists.is_empty() {
        return Err("the file of revocation lists contains none in PEM".to_owned());
    }
    lists.sort_by_cached_key(|list| Reverse(this_update(&list.der).unwrap_or(0)));
    Ok(lists.into_iter().map(|section| CertificateRevocationListDer::from(section.der)).collect())
}

/// The certificates by the names they are for.
struct Hosts {
    named: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl Hosts {
    fn new(settings: &Settings<'_>, provider: &CryptoProvider) -> Result<Self, String> {
        let mut named = HashMap::new();
        let mut default = None;
        for certificate in &settings.certificates {
            let key = Arc::new(certified(certificate, settings.password, provider)?);
            match &certificate.host {
                Some(host) => drop(named.insert(host.clone(), key)),
                None => default = Some(key),
            }
        }
        let default = default.ok_or("one certificate must be for all names")?;
        Ok(Self { named, default })
    }

    /// An exact match, else the wildcard of its siblings.
    fn find(&self, name: Option<&str>) -> Option<(&String, &Arc<CertifiedKey>)> {
        let name = name.filter(|_| !self.named.is_empty())?;
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        self.named.get_key_value(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.named.get_key_value(&format!("*.{parent}"))
        })
    }
}

impl Debug for Hosts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.named.keys()).finish()
    }
}

impl ResolvesServerCert for Hosts {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()).map_or(&self.default, |(_, key)| key).clone())
    }
}

fn certified(
    certificate: &Certificate<'_>,
    password: Option<&[u8]>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let chain = sections(certificate.chain).ok_or("the certificate is malformed")?;
    let chain: Vec<_> = chain
        .into_iter()
        .filter(crate::pem::Section::is_certificate)
        .map(|section| CertificateDer::from(section.der))
        .collect();
    if chain.is_empty() {
        return Err("the PEM data contains no certificate".to_owned());
    }
    let key = key::read(certificate.key, password).map_err(|error| error.text().to_owned())?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| "the kind of the private key is not supported".to_owned())?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err("the private key does not match the certificate".to_owned()),
        Err(error) => Err(format!("the certificate cannot be used: {}", text_of(&error))),
    }
}
