//! Identities of hosts and controllers, and the TLS settings of both ends.
//!
//! An identity is an Ed25519 key. TLS 1.3 proves that each end has the private key of the public
//! key that it shows (RFC 7250). A host accepts exactly one public key of a controller. A
//! controller accepts the handshake with any key; afterwards it reads the fingerprint of the host
//! by [`peer`], and decides.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName};
use rustls::{Error, ServerConfig, SignatureScheme};
use rustls_pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use serde::{Deserialize, Serialize};

/// Number of bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = 32;

/// SHA-256 hash of a public key (its SubjectPublicKeyInfo).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(bytes)
    }

    /// Reads a fingerprint from its text.
    ///
    /// # Errors
    /// If the text is no fingerprint.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("`{text}` is no fingerprint"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

/// The private key of a host or a controller.
#[derive(Clone)]
pub struct Identity {
    pkcs8: Vec<u8>,
    key: Arc<dyn SigningKey>,
    public: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint()) // a log must not contain the key
    }
}

impl Identity {
    /// Draws an identity.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn draw() -> Result<Self, String> {
        let drawn = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let drawn = drawn.map_err(|_| "the kernel gives no random bytes".to_owned())?;
        Self::read(drawn.as_ref().to_vec())
    }

    /// Reads an identity from its text.
    ///
    /// # Errors
    /// If the text is no identity. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pkcs8 = STANDARD.decode(text.trim());
        Self::read(pkcs8.map_err(|_| "it is no identity: it is not base64".to_owned())?)
    }

    fn read(pkcs8: Vec<u8>) -> Result<Self, String> {
        let wrong = || "it is no identity: it is no Ed25519 key".to_owned();
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()));
        let key = key.map_err(|_| wrong())?;
        let public = key.public_key().ok_or_else(wrong)?.to_vec();
        Ok(Self { pkcs8, key, public })
    }

    /// Returns the text of the identity. It contains the private key.
    pub fn expose(&self) -> String {
        STANDARD.encode(&self.pkcs8)
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.public)
    }

    fn certified(&self) -> Arc<CertifiedKey> {
        let public = CertificateDer::from(self.public.clone());
        Arc::new(CertifiedKey::new(vec![public], Arc::clone(&self.key)))
    }
}

/// Returns the TLS settings of a host, which accepts only this controller.
///
/// # Errors
/// If the cryptographic library does not support TLS 1.3.
pub fn of_host(own: &Identity, controller: Fingerprint) -> Result<Arc<ClientConfig>, Error> {
    let crypto = crypto();
    let verifier = Pinned { controller, algorithms: crypto.signature_verification_algorithms };
    let config = ClientConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13])?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let key = AlwaysResolvesClientRawPublicKeys::new(own.certified());
    let mut config = config.with_client_cert_resolver(Arc::new(key));
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the TLS settings of a controller.
///
/// # Errors
/// If the cryptographic library does not support TLS 1.3.
pub fn of_controller(own: &Identity) -> Result<Arc<ServerConfig>, Error> {
    let crypto = crypto();
    let verifier = AnyKey { algorithms: crypto.signature_verification_algorithms };
    let config = ServerConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13])?;
    let config = config.with_client_cert_verifier(Arc::new(verifier));
    let key = AlwaysResolvesServerRawPublicKeys::new(own.certified());
    let mut config = config.with_cert_resolver(Arc::new(key));
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the name of the controller in TLS, which no end compares with anything.
pub fn controller_name() -> ServerName<'static> {
    ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]))
}

/// Returns the fingerprint of the other end, from the certificates of its connection; `None` before
/// the end of the handshake.
pub fn peer(certificates: Option<&[CertificateDer<'_>]>) -> Option<Fingerprint> {
    certificates?.first().map(|key| Fingerprint::of(key))
}

/// Whether an error of TLS means that the controller has another identity than the expected one.
pub fn is_other_controller(error: &Error) -> bool {
    let other = CertificateError::ApplicationVerificationFailure;
    matches!(error, Error::InvalidCertificate(found) if *found == other)
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

/// The error for a signature of an older version of TLS, which neither end offers.
fn only_tls13() -> Error {
    Error::General("only TLS 1.3 is supported".to_owned())
}

/// Accepts the public key of one controller.
#[derive(Debug)]
struct Pinned {
    controller: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Fingerprint::of(key) == self.controller {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts any public key, if the other end has its private key.
#[derive(Debug)]
struct AnyKey {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{ClientConnection, Connection, ServerConnection};

    /// Exchanges the messages of the handshake.
    fn shake(host: &mut Connection, controller: &mut Connection) -> Result<(), Error> {
        for _ in 0..8 {
            for turn in [true, false] {
                let (from, to) = match turn {
                    true => (&mut *host, &mut *controller),
                    false => (&mut *controller, &mut *host),
                };
                let mut bytes = Vec::new();
                while from.wants_write() {
                    from.write_tls(&mut bytes).unwrap();
                }
                let mut bytes = bytes.as_slice();
                while !bytes.is_empty() {
                    to.read_tls(&mut bytes).unwrap();
                    to.process_new_packets()?;
                }
            }
        }
        Ok(())
    }

    fn connect(own: &Identity, expects: Fingerprint, at: &Identity) -> Result<Fingerprint, Error> {
        let host = ClientConnection::new(of_host(own, expects)?, controller_name())?;
        let controller = ServerConnection::new(of_controller(at)?)?;
        let (mut host, mut controller) = (Connection::from(host), Connection::from(controller));
        shake(&mut host, &mut controller)?;
        assert!(!host.is_handshaking() && !controller.is_handshaking());
        assert_eq!(peer(host.peer_certificates()), Some(expects));
        peer(controller.peer_certificates()).ok_or(Error::DecryptError)
    }

    #[test]
    fn both_ends_learn_the_fingerprint_of_the_other_end() {
        let [host, controller] = [0; 2].map(|_| Identity::draw().unwrap());
        let seen = connect(&host, controller.fingerprint(), &controller).unwrap();
        assert_eq!(seen, host.fingerprint());
        let again = Identity::parse(&format!("{}\n", host.expose())).unwrap();
        assert_eq!(again.fingerprint(), host.fingerprint());
        assert!(!format!("{host:?}").contains(&host.expose()));
    }

    #[test]
    fn a_controller_of_another_fingerprint_is_refused() {
        let [host, controller, other] = [0; 3].map(|_| Identity::draw().unwrap());
        let error = connect(&host, controller.fingerprint(), &other).unwrap_err();
        assert!(is_other_controller(&error), "{error}");
    }

    #[test]
    fn texts_that_are_no_identities_are_refused_without_being_shown() {
        for bad in ["", "hidden", "aGlkZGVu"] {
            let error = Identity::parse(bad).unwrap_err();
            assert!(!error.contains("hidden"), "{error}");
        }
        let fingerprint = Identity::draw().unwrap().fingerprint();
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Ok(fingerprint));
        Fingerprint::parse("x").unwrap_err();
    }
}
