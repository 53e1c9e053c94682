//! Certificates, lists of revoked certificates, and texts for their errors. Only TLS 1.3 is
//! supported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};

use crate::key;

/// Bytes that a TLS record has in addition to its content, as rustls counts its limit.
const RECORD_FRAME_BYTES: usize = 5;

/// A certificate with the intermediate certificates up to its issuer, and its key. The files are in
/// PEM.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Identity {
    /// File with the certificate first, then the intermediate certificates.
    pub certificate: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
}

/// The issuers of the other side's certificates. The files are in PEM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issuers<'a> {
    /// File with the certificates of the issuers.
    pub ca: &'a Path,
    /// File with the lists of certificates that the issuers have revoked, one list of each issuer;
    /// `None`: no list is checked.
    pub crl: Option<&'a Path>,
}

/// Returns the TLS settings of the half beside the client. `cut` is the largest number of bytes of
/// a TLS record; `None`: up to 16 KiB.
///
/// # Errors
/// A text for the user, if a file cannot be read or has the wrong content.
pub fn client(
    issuers: Issuers<'_>,
    own: Option<&Identity>,
    cut: Option<usize>,
) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_protocol_versions(&[&TLS13])?;
    let roots = Arc::new(roots(issuers.ca)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
    let config = config.with_webpki_verifier(verifier.with_crls(lists(issuers.crl)?).build()?);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = identity(own)?;
            config.with_client_auth_cert(chain, key).with_context(|| mismatch(own))?
        }
    };
    config.max_fragment_size = cut.map(|bytes| bytes + RECORD_FRAME_BYTES);
    Ok(Arc::new(config))
}

/// Returns the TLS settings of the half beside the server. `clients` holds the issuers of clients'
/// certificates and the accepted names: if there are names, a certificate must have one of them. If
/// `clients` is `None`, every client is served. `cut` is the largest number of bytes of a TLS
/// record; `None`: up to 16 KiB.
///
/// # Errors
/// The errors of [`client`].
pub fn server(
    own: &Identity,
    clients: Option<(Issuers<'_>, &[String])>,
    cut: Option<usize>,
) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_protocol_versions(&[&TLS13])?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some((issuers, names)) => {
            let roots = Arc::new(roots(issuers.ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = verifier.with_crls(lists(issuers.crl)?).build()?;
            config.with_client_cert_verifier(if names.is_empty() {
                verifier
            } else {
                Arc::new(Named { issued: verifier, names: parse(names)? })
            })
        }
    };
    let (chain, key) = identity(own)?;
    let mut config = config.with_single_cert(chain, key).with_context(|| mismatch(own))?;
    config.max_fragment_size = cut.map(|bytes| bytes + RECORD_FRAME_BYTES);
    Ok(Arc::new(config))
}

/// Accepts clients whose certificate comes from an accepted issuer and has an accepted name.
#[derive(Debug)]
struct Named {
    issued: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.issued.verify_client_cert(own, intermediates, now)?;
        let parsed = ParsedCertificate::try_from(own)?;
        let has_name = |name| verify_server_name(&parsed, name).is_ok();
        if self.names.iter().any(has_name) {
            return Ok(verified);
        }
        Err(CertificateError::NotValidForName.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

fn parse(names: &[String]) -> Result<Vec<ServerName<'static>>> {
    let one = |name: &String| {
        ServerName::try_from(name.clone())
            .with_context(|| format!("{name:?} is no name that a certificate may have"))
    };
    names.iter().map(one).collect()
}

fn mismatch(own: &Identity) -> String {
    let Identity { certificate, key } = own;
    format!("{} and {}: do they belong together?", certificate.display(), key.display())
}

fn roots(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).with_context(|| file.display().to_string())?;
    }
    Ok(roots)
}

fn identity(own: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    Ok((certificates(&own.certificate)?, key::read(&own.key)?))
}

fn lists(file: Option<&Path>) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let wrong = |e| anyhow::anyhow!("{}: no list of revoked certificates: {e}", file.display());
    let found = CertificateRevocationListDer::pem_file_iter(file).map_err(wrong)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() {
        bail!("{}: no list in it; expected -----BEGIN X509 CRL-----", file.display());
    }
    Ok(found)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |e| anyhow::anyhow!("{}: no certificates in PEM: {e}", file.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect();
    let found = found.map_err(wrong)?;
    if found.is_empty() {
        bail!("{}: no certificate in it; expected -----BEGIN CERTIFICATE-----", file.display());
    }
    Ok(found)
}

/// Returns the description of a TLS error, with a remedy.
pub fn explain(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    let advice = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the other side's certificate has expired: renew it there, then send SIGHUP"
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the other side's certificate is not valid yet: compare the clocks"
            }
            Bad::UnknownIssuer => {
                "the other side's certificate is not from an issuer in the CA file"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate is for another name: give --server-name, or --client-name with \
                 --serve, or a certificate with this name"
            }
            Bad::Revoked => "the other side's certificate is revoked: give it another one",
            Bad::UnknownRevocationStatus => {
                "no list of the issuer of the other side's certificate is in the file of --crl"
            }
            _ => "the other side's certificate is not accepted",
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::CertificateExpired => {
                // The alert is the same for a certificate that is not valid yet.
                "the other side says that our certificate has expired or is not valid yet: \
                 compare the clocks, or renew it and send SIGHUP"
            }
            Alert::CertificateRequired => {
                "the other side wants a certificate of ours: give --cert and --key"
            }
            Alert::CertificateRevoked => {
                "the other side says that our certificate is revoked: give another one"
            }
            Alert::BadCertificate => {
                "the other side does not take our certificate: has it a name of its --client-name?"
            }
            Alert::UnknownCA => "the other side does not know the issuer of our certificate",
            _ => "the other side refused",
        },
        rustls::Error::NoCertificatesPresented => {
            "the other side has no certificate, and needs one: give it --cert and --key"
        }
        rustls::Error::InvalidMessage(_) => "the other side does not speak TLS on this port",
        rustls::Error::PeerIncompatible(_) => "the other side has no TLS 1.3",
        _ => "TLS failed",
    };
    format!("{advice} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: for a certificate that is not valid yet, the text named only expiry; for a
    /// client without a certificate, it named no cause.
    #[test]
    fn regression_errors_of_certificates_have_their_remedies() {
        let text = explain(&rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        assert!(text.contains("not valid yet") && text.contains("clocks"), "{text}");
        let text = explain(&rustls::Error::NoCertificatesPresented);
        assert!(text.contains("--cert and --key"), "{text}");
    }
}
