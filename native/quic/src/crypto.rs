//! TLS of QUIC (RFC 9001), by rustls: messages of the handshake in and out, keys.
//!
//! ```text
//! SHAKING ──client's Finished, tickets are written──▶ OVER (rustls is dropped, a description of the handshake is kept)
//! ```
//!
//! quinn-proto has the same for clients and servers; it tells less, and keeps the state of the handshake, 5 KiB, for as
//! long as the connection lives.

use std::any::Any;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Version};
use rustls::{AlertDescription, HandshakeKind, ServerConfig, Tls13CipherSuite};

use crate::provider::TLS13_AES_128_GCM_SHA256;

/// What both ends have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The IANA number of the cipher suite.
    pub suite: Option<u16>,
    /// The IANA number of the group of the key exchange.
    pub group: Option<u16>,
    /// The protocol of ALPN.
    pub protocol: Option<Vec<u8>>,
    /// The name that the client has asked for.
    pub server_name: Option<String>,
    /// The name of the certificate that was shown; `None` is the one for all other names.
    pub host: Option<String>,
    /// The client's certificate in DER, and those that lead from it to an authority.
    pub chain: Vec<Vec<u8>>,
    /// Why the certificate of the client is not good, if it is served nevertheless.
    pub error: Option<String>,
    /// The session of an earlier connection was resumed.
    pub resumed: bool,
}

/// The TLS settings of connections that begin now.
pub(crate) struct Crypto {
    tls: Arc<tls::Config>,
    server: Arc<ServerConfig>,
    /// Has the keys of first packets, and of retries.
    initial: QuicServerConfig,
}

impl Crypto {
    pub(crate) fn new(tls: Arc<tls::Config>, protocols: &[Vec<u8>], early_data: bool) -> Result<Arc<Self>, String> {
        let server = tls.for_quic(protocols, early_data)?;
        let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(Tls13CipherSuite::quic_suite);
        let suite = suite.ok_or("the provider of cryptography lacks AES-128-GCM for QUIC")?;
        let initial = QuicServerConfig::with_initial(server.clone(), suite);
        let initial = initial.map_err(|_| "the provider of cryptography lacks AES-128-GCM for QUIC")?;
        Ok(Arc::new(Self { tls, server, initial }))
    }
}

impl crypto::ServerConfig for Crypto {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.initial.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, first_id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, first_id, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, parameters: &TransportParameters) -> Box<dyn crypto::Session> {
        let mut bytes = Vec::new();
        parameters.write(&mut bytes);
        // No other is offered, and `for_quic` has checked everything that this can fail by.
        let connection = ServerConnection::new(self.server.clone(), Version::V1, bytes).ok();
        let state = connection.map_or(State::Over(Box::default()), |connection| State::Shaking(Box::new(connection)));
        Box::new(Session { config: self, version, state, is_announced: false, next_keys: None })
    }
}

enum State {
    Shaking(Box<ServerConnection>),
    /// Everything is known, and nothing more is said.
    Over(Box<Handshake>),
}

struct Session {
    config: Arc<Crypto>,
    version: u32,
    state: State,
    /// ALPN was checked.
    is_announced: bool,
    /// Has the keys of all updates.
    next_keys: Option<Secrets>,
}

impl Session {
    fn describe(&self) -> Handshake {
        let connection = match &self.state {
            State::Shaking(connection) => connection,
            State::Over(handshake) => return (**handshake).clone(),
        };
        let tls = &self.config.tls;
        let chain: &[CertificateDer<'_>] = connection.peer_certificates().unwrap_or_default();
        Handshake {
            suite: connection.negotiated_cipher_suite().map(|suite| u16::from(suite.suite())),
            group: connection.negotiated_key_exchange_group().map(|group| u16::from(group.name())),
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: connection.server_name().map(str::to_owned),
            host: tls.host_of(connection.server_name()).map(str::to_owned),
            chain: tls.path(chain).into_iter().map(|der| der.as_ref().to_vec()).collect(),
            error: tls.error_of(chain),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

fn pair(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}

fn alert(alert: AlertDescription, reason: String) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(alert.into()), frame: None, reason }
}

impl crypto::Session for Session {
    fn initial_keys(&self, id: &ConnectionId, _side: Side) -> Keys {
        match crypto::ServerConfig::initial_keys(&*self.config, self.version, id) {
            Ok(keys) => keys,
            // Its version was served before it had a session.
            Err(_) => unreachable!("the version is served"),
        }
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let is_known = self.is_announced || matches!(self.state, State::Over(_));
        is_known.then(|| Box::new(self.describe()) as Box<dyn Any>)
    }

    /// It is part of the handshake's data.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let State::Shaking(connection) = &self.state else { return None };
        let keys = connection.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    /// Clients alone learn that.
    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        matches!(&self.state, State::Shaking(connection) if connection.is_handshaking())
    }

    fn read_handshake(&mut self, message: &[u8]) -> Result<bool, TransportError> {
        let State::Shaking(connection) = &mut self.state else {
            // Behind its Finished a client of QUIC has nothing to say (RFC 9001 sections 4.4 and 6).
            return Err(alert(AlertDescription::UnexpectedMessage, "a message of TLS behind the handshake".to_owned()));
        };
        if let Err(error) = connection.read_hs(message) {
            return Err(match connection.alert() {
                Some(description) => alert(description, error.to_string()),
                None => TransportError {
                    code: TransportErrorCode::PROTOCOL_VIOLATION,
                    frame: None,
                    reason: format!("TLS error: {error}"),
                },
            });
        }
        let is_known = connection.alpn_protocol().is_some() || !connection.is_handshaking();
        Ok(is_known && !std::mem::replace(&mut self.is_announced, is_known))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Shaking(connection) = &self.state else { return Ok(None) };
        let Some(mut bytes) = connection.quic_transport_parameters() else { return Ok(None) };
        TransportParameters::read(Side::Server, &mut bytes).map(Some).map_err(Into::into)
    }

    fn write_handshake(&mut self, messages: &mut Vec<u8>) -> Option<Keys> {
        let State::Shaking(connection) = &mut self.state else { return None };
        let length = messages.len();
        let keys = match connection.write_hs(messages) {
            Some(KeyChange::Handshake { keys }) => keys,
            Some(KeyChange::OneRtt { keys, next }) => {
                self.next_keys = Some(next);
                keys
            }
            None => {
                // The tickets come with the last messages.
                if messages.len() == length && !connection.is_handshaking() {
                    self.state = State::Over(Box::new(self.describe()));
                }
                return None;
            }
        };
        Some(pair(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_keys.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    /// Servers get none.
    fn is_valid_retry(&self, _first_id: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    /// No part of the server uses it.
    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}
