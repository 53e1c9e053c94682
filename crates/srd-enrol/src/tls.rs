//! Identities of hosts and controllers, and the TLS settings of both ends.
//!
//! An identity is an Ed25519 key. TLS 1.3 proves that each end has the private key of the public
//! key that it shows (RFC 7250). A controller accepts the handshake with any key; afterwards it
//! reads the fingerprint of the host by [`peer`], and decides.
//!
//! A host accepts one public key of a controller, and a second one during a change of the
//! controller's identity. It sends the fingerprints of both as names of protocols (ALPN), so that
//! the controller can choose an identity that the host accepts. A host of an earlier build sends no
//! names.

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
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
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
/// Beginning of the names of protocols that contain fingerprints of accepted controllers.
const ACCEPTED: &str = "srd-controller/";

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

/// Returns the name of the protocol by which a host accepts a controller.
fn protocol(controller: Fingerprint) -> Vec<u8> {
    format!("{ACCEPTED}{controller}").into_bytes()
}

/// Returns the TLS settings of a host, which accepts only controllers with one of these
/// fingerprints.
///
/// # Errors
/// If the cryptographic library does not support TLS 1.3.
pub fn of_host(own: &Identity, accepted: &[Fingerprint]) -> Result<Arc<ClientConfig>, Error> {
    let crypto = crypto();
    let algorithms = crypto.signature_verification_algorithms;
    let verifier = Pinned { accepted: accepted.to_vec(), algorithms };
    let config = ClientConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13])?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let key = AlwaysResolvesClientRawPublicKeys::new(own.certified());
    let mut config = config.with_client_cert_resolver(Arc::new(key));
    config.alpn_protocols = accepted.iter().copied().map(protocol).collect();
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the TLS settings of a controller. `identities` is called for each handshake and returns
/// the identities of the controller, the preferred one first. The controller shows the first one
/// that the host accepts. A host that accepts none of them, or does not name them, gets the last
/// one.
///
/// # Errors
/// If the cryptographic library does not support TLS 1.3.
pub fn of_controller(
    identities: impl Fn() -> Vec<Identity> + Send + Sync + 'static,
) -> Result<Arc<ServerConfig>, Error> {
    let crypto = crypto();
    let verifier = AnyKey { algorithms: crypto.signature_verification_algorithms };
    let config = ServerConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13])?;
    let config = config.with_client_cert_verifier(Arc::new(verifier));
    let mut config = config.with_cert_resolver(Arc::new(OwnIdentities(identities)));
    // The names of protocols are read in the hello only. No protocol is selected, so a host of
    // another build is not refused for its names.
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

/// The identities of a controller, as a function that returns them.
struct OwnIdentities<F>(F);

impl<F> fmt::Debug for OwnIdentities<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnIdentities")
    }
}

impl<F: Fn() -> Vec<Identity> + Send + Sync> ResolvesServerCert for OwnIdentities<F> {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let all = (self.0)();
        let is_accepted = |own: &&Identity| {
            let name = protocol(own.fingerprint());
            hello.alpn().is_some_and(|mut names| names.any(|of| of == name.as_slice()))
        };
        all.iter().find(is_accepted).or(all.last()).map(Identity::certified)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts the public keys of these controllers.
#[derive(Debug)]
struct Pinned {
    accepted: Vec<Fingerprint>,
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
        match self.accepted.contains(&Fingerprint::of(key)) {
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

    /// Connects with these settings of a host. Returns the fingerprints of the host and of the
    /// controller, as the other end has them.
    fn connect_by(
        settings: Arc<ClientConfig>,
        at: &[&Identity],
    ) -> Result<[Option<Fingerprint>; 2], Error> {
        let at: Vec<Identity> = at.iter().map(|own| (*own).clone()).collect();
        let host = ClientConnection::new(settings, controller_name())?;
        let controller = ServerConnection::new(of_controller(move || at.clone())?)?;
        let (mut host, mut controller) = (Connection::from(host), Connection::from(controller));
        shake(&mut host, &mut controller)?;
        assert!(!host.is_handshaking() && !controller.is_handshaking());
        Ok([peer(controller.peer_certificates()), peer(host.peer_certificates())])
    }

    fn connect(own: &Identity, expects: Fingerprint, at: &Identity) -> Result<Fingerprint, Error> {
        let [host, controller] = connect_by(of_host(own, &[expects])?, &[at])?;
        assert_eq!(controller, Some(expects));
        host.ok_or(Error::DecryptError)
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
    fn a_controller_with_two_identities_shows_the_one_that_the_host_accepts() {
        let [host, present, next, other] = [0; 4].map(|_| Identity::draw().unwrap());
        let shown = |accepted: &[&Identity], at: &[&Identity]| {
            let accepted: Vec<_> = accepted.iter().map(|own| own.fingerprint()).collect();
            connect_by(of_host(&host, &accepted).unwrap(), at).map(|[_, shown]| shown.unwrap())
        };
        let both = [&next, &present];
        assert_eq!(shown(&[&present], &both), Ok(present.fingerprint()));
        assert_eq!(shown(&[&next], &both), Ok(next.fingerprint()));
        assert_eq!(shown(&[&present, &next], &both), Ok(next.fingerprint()));
        // Before and after the change, a host that accepts both reaches either identity.
        assert_eq!(shown(&both, &[&present]), Ok(present.fingerprint()));
        assert_eq!(shown(&both, &[&next]), Ok(next.fingerprint()));
        let error = shown(&[&other], &both).unwrap_err();
        assert!(is_other_controller(&error), "{error}");
        assert!(shown(&[&present], &[]).is_err(), "a controller without an identity");
    }

    /// A host of an earlier build accepts one controller, and does not name it.
    #[test]
    fn a_host_that_names_no_controller_gets_the_last_identity() {
        let [host, present, next] = [0; 3].map(|_| Identity::draw().unwrap());
        for (accepted, is_shown) in [(&present, true), (&next, false)] {
            let mut settings = (*of_host(&host, &[accepted.fingerprint()]).unwrap()).clone();
            settings.alpn_protocols.clear();
            let shown = connect_by(Arc::new(settings), &[&next, &present]);
            assert_eq!(shown.is_ok(), is_shown);
        }
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
