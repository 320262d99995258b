//! A rustls client and a session, connected by memory that cuts what it moves.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "tests")]

use std::io::{Cursor, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs as crypto;
#[cfg(not(feature = "aws-lc"))]
use rustls::crypto::ring as crypto;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use tls::{Certificate, Config, Failure, Scratch, Session, Settings, TicketPolicy, Verify};

/// Certificate and key.
pub struct Pair {
    pub der: CertificateDer<'static>,
    pub pem: String,
    pub key: String,
    pub key_der: Vec<u8>,
}

/// One authority, and what it has signed.
pub struct Pki {
    params: CertificateParams,
    issuer: Issuer<'static, KeyPair>,
    pub authority: CertificateDer<'static>,
    pub authority_pem: String,
}

impl Pki {
    pub fn new() -> Self {
        Self::named("an authority")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        let (authority, authority_pem) = (own.der().clone(), own.pem());
        Self { params: params.clone(), issuer: Issuer::new(params, key), authority, authority_pem }
    }

    /// Another certificate of its name and key, in PEM, valid from the first day of one year to that of another.
    pub fn between(&self, first: i32, last: i32) -> String {
        let mut params = self.params.clone();
        (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
        params.self_signed(self.issuer.key()).unwrap().pem()
    }

    pub fn sign(&self, name: &str, serial: u64) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        Pair { der: own.der().clone(), pem: own.pem(), key: key.serialize_pem(), key_der: key.serialize_der() }
    }

    /// A list with this one.
    pub fn revoke(&self, serial: u64) -> String {
        self.revoke_until(serial, 2090)
    }

    pub fn revoke_until(&self, serial: u64, year: i32) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024.min(year - 1), 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    pub fn client(&self, versions: &[&'static SupportedProtocolVersion], own: Option<&Pair>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        // As browsers order them.
        let kx_groups = vec![
            #[cfg(feature = "aws-lc")]
            crypto::kx_group::X25519MLKEM768,
            crypto::kx_group::X25519,
            crypto::kx_group::SECP256R1,
        ];
        let provider = Arc::new(CryptoProvider { kx_groups, ..crypto::default_provider() });
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.key_der.clone()));
                builder.with_client_auth_cert(vec![own.der.clone()], key).unwrap()
            }
        }
    }
}

/// The settings of a server with one certificate, and nothing else.
pub fn settings(own: &Pair) -> Settings<'_> {
    Settings {
        certificates: vec![Certificate { host: None, chain: own.pem.as_bytes(), key: own.key.as_bytes() }],
        password: None,
        alpn: vec![],
        versions: (0x0303, 0x0304),
        suites: None,
        verify: Verify::None,
        authorities: None,
        revoked: None,
        serves_unverified: false,
        tickets: TicketPolicy::None,
    }
}

/// One connection.
pub struct Link {
    pub client: ClientConnection,
    pub session: Session,
    pub scratch: Scratch,
    /// Bytes that one read of the server gets.
    pub cut: usize,
    /// Plaintext that the server has received.
    pub received: Vec<u8>,
    /// Plaintext that the client has received.
    pub echoed: Vec<u8>,
    pub client_error: Option<rustls::Error>,
}

impl Link {
    pub fn new(client: &Arc<ClientConfig>, name: &str, config: &Arc<Config>, cut: usize) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        Self {
            client: ClientConnection::new(client.clone(), name).unwrap(),
            session: Session::new(config.clone()),
            scratch: Scratch::default(),
            cut,
            received: vec![],
            echoed: vec![],
            client_error: None,
        }
    }

    /// Give the server bytes of the network.
    pub fn feed(&mut self, records: &[u8]) -> Result<(), Failure> {
        for piece in records.chunks(self.cut) {
            self.session.room(&mut self.scratch, piece.len()).copy_from_slice(piece);
            let mut into = vec![0; self.session.buffered() + piece.len()];
            let got = self.session.receive(&mut self.scratch, piece.len(), &mut into);
            self.received.extend_from_slice(&into[..got.length]);
            self.deliver();
            if let Some(failure) = got.failure {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Give the client what the server has to say.
    pub fn deliver(&mut self) {
        let mut records = Cursor::new(self.scratch.output.bytes().to_vec());
        self.scratch.output.clear();
        while records.position() < records.get_ref().len() as u64 {
            self.client.read_tls(&mut records).unwrap();
            if let Err(error) = self.client.process_new_packets() {
                self.client_error = Some(error);
                return;
            }
            let mut room = [0; 16384];
            while let Ok(length @ 1..) = self.client.reader().read(&mut room) {
                self.echoed.extend_from_slice(&room[..length]);
            }
        }
    }

    /// What the client has to say now.
    pub fn records(&mut self) -> Vec<u8> {
        let mut records = vec![];
        while self.client.wants_write() {
            self.client.write_tls(&mut records).unwrap();
        }
        records
    }

    /// Move what either side has to say, until neither has anything.
    pub fn pump(&mut self) -> Result<(), Failure> {
        self.deliver();
        while self.client.wants_write() {
            let mut records = vec![];
            self.client.write_tls(&mut records).unwrap();
            self.feed(&records)?;
        }
        Ok(())
    }

    pub fn say(&mut self, data: &[u8]) -> Result<(), Failure> {
        // rustls buffers no more than that.
        for piece in data.chunks(32 * 1024) {
            self.client.writer().write_all(piece).unwrap();
            self.pump()?;
        }
        Ok(())
    }

    pub fn answer(&mut self, pieces: &[&[u8]]) -> Result<(), Failure> {
        let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        self.session.seal(&mut self.scratch, &pieces)?;
        self.pump()
    }

    /// Whether the client has read the server's `close_notify`.
    pub fn client_has_end(&mut self) -> bool {
        self.client.process_new_packets().is_ok_and(|state| state.peer_has_closed())
    }
}
