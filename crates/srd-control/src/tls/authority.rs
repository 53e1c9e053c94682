//! An authority of the control plane's own, for a server without a certificate of its operator.
//!
//! The authority is a part of the state, so clients that trust it go on to do so after a restart of
//! the server, also with other names. Each start issues another certificate. The key of that
//! certificate stays in the memory of the process.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::random;

/// An authority: its name, its certificate and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Authority {
    name: String,
    /// The certificate in PEM.
    certificate: String,
    /// The key in PEM.
    key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Authority {
    /// Draws an authority from the random bytes of the kernel.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn draw() -> Result<Self, String> {
        let name = format!("OpenSRD control plane {:016x}", random::number()?);
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = parameters(&name).self_signed(&key).map_err(|error| error.to_string())?;
        Ok(Self { name, certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// The certificate in PEM, by which clients recognize the server.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the record of the authority for the store.
    pub(crate) fn record(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// Returns the authority of a record in the store.
    pub(crate) fn read(record: &str) -> Result<Self, String> {
        // The text of the parser's error could contain a part of the key.
        serde_json::from_str(record).map_err(|_| "it is no authority of certificates".to_owned())
    }

    /// Issues a certificate for these names, with a new key.
    pub(super) fn issue(
        &self,
        names: &[String],
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
        let key = KeyPair::from_pem(&self.key)?;
        // An equal certificate: issued certificates refer to its name and its key only.
        let issuer = parameters(&self.name).self_signed(&key)?;
        let own = KeyPair::generate()?;
        let mut wanted = CertificateParams::new(names)?;
        wanted.distinguished_name = named("OpenSRD control plane");
        wanted.use_authority_key_identifier_extension = true;
        wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = wanted.signed_by(&own, &issuer, &key)?;
        let own = PrivateKeyDer::Pkcs8(own.serialize_der().into());
        Ok((certificate.der().clone(), own))
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Parameters of the certificate of the authority, which is valid until the year 4096.
fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_kept_and_its_key_is_not_shown() {
        let authority = Authority::draw().unwrap();
        assert_eq!(Authority::read(&authority.record().unwrap()).unwrap(), authority);
        assert!(!format!("{authority:?}").contains("PRIVATE"));
        let record = authority.record().unwrap();
        let error = Authority::read(&record.replace("Name", "Names")).unwrap_err();
        assert!(!error.contains("PRIVATE"), "{error}");
        assert_ne!(Authority::draw().unwrap(), authority);
    }
}
