//! Certificates of the server, and the names that they are valid for. Only TLS 1.3 is supported.
//!
//! ```text
//!  files of the operator ---\
//!                            >--> Certificates --> settings of each new connection
//!  authority of the state --/                \--> names in the header Host
//! ```
//!
//! The files are read again as soon as one of them has changed, and a new authority issues another
//! certificate. If their new content is refused, the former certificate stays in use.
//!
//! | module | content |
//! |---|---|
//! | [`authority`] | the authority of a server without a certificate of its operator |

pub mod authority;

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use srd_trust::private;

pub use authority::Authority;

/// Largest number of names of a server.
pub const NAMES_MAX: usize = 100;
/// Largest size of a file with certificates or a key, in bytes.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Origin of the certificates of a server.
#[derive(Clone, Debug)]
pub enum Source {
    /// Files of the operator, in PEM.
    Files {
        /// File with the certificate first, then the intermediate certificates.
        certificate: PathBuf,
        /// File with the key of the certificate.
        key: PathBuf,
    },
    /// An authority of the control plane's own.
    Authority(Authority),
}

/// Properties of a file that change with its content: device, inode, size, and the time of the last
/// change in seconds and nanoseconds. `None`: the file cannot be found.
pub(crate) type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Returns the stamp of a file.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let of = fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}

/// The last read of files.
#[derive(Debug)]
pub(crate) struct LastRead<S> {
    /// The stamps of the files before the read.
    stamps: S,
    /// The error of the read.
    error: Option<String>,
}

impl<S> LastRead<S> {
    /// A read that has succeeded.
    pub(crate) fn new(stamps: S) -> Self {
        Self { stamps, error: None }
    }
}

/// Replaces what was read from files, if one of the files has changed since the last read, or this
/// read has failed: a failure may have another cause than the content of the files, for example
/// too many open files. Returns `None` if there is nothing new. `last_of` returns the last read;
/// `stamps`: those of the files now.
///
/// # Errors
/// An error of `read`, unless the last read had the same. The present content stays.
pub(crate) fn read_again<T, S: PartialEq>(
    current: &Mutex<T>,
    stamps: S,
    last_of: impl Fn(&mut T) -> &mut LastRead<S>,
    read: impl FnOnce() -> Result<T, String>,
) -> Option<Result<(), String>> {
    let lock = || current.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut current = lock();
        let last = last_of(&mut current);
        if last.stamps == stamps && last.error.is_none() {
            return None;
        }
    }
    let new = read();
    let mut current = lock();
    match new {
        Ok(new) => {
            *current = new;
            Some(Ok(()))
        }
        Err(error) => {
            let last = last_of(&mut current);
            last.stamps = stamps;
            let is_new = last.error.replace(error.clone()).as_ref() != Some(&error);
            is_new.then_some(Err(error))
        }
    }
}

/// Certificates of a server.
pub struct Certificates {
    source: Mutex<Source>,
    names: Vec<String>,
    current: Mutex<Current>,
}

/// The certificate that new connections get.
struct Current {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    /// The last read of the files.
    last: LastRead<[Stamp; 2]>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads or issues the certificate of a server that has these names: names of DNS, and
    /// addresses.
    ///
    /// # Errors
    /// If a name is invalid, a file cannot be read or has the wrong content, or the certificate is
    /// not valid for one of the names. The text states what to do.
    pub fn new(source: Source, names: Vec<String>) -> Result<Self, String> {
        if names.len() > NAMES_MAX {
            return Err(format!("the server has more than {NAMES_MAX} names"));
        }
        if let Some(name) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(format!("`{name}` is neither a name of DNS nor an address"));
        }
        let current = Mutex::new(read(&source, &names)?);
        Ok(Self { source: Mutex::new(source), names, current })
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settings for a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().config)
    }

    /// Whether this is a name or an address of the server.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
            || is_valid_for(&self.current().certificate, name)
    }

    /// Reads the files again if one of them has changed, or the last read has failed, for later
    /// connections. Returns `None` if there is nothing new.
    ///
    /// # Errors
    /// As [`Self::new`], unless the last read had the same error. The former certificate stays in
    /// use.
    pub fn reload(&self) -> Option<Result<(), String>> {
        let source = self.source().clone();
        let read = || read(&source, &self.names);
        read_again(&self.current, source.stamps(), |current| &mut current.last, read)
    }

    /// Issues another certificate, for later connections, if the authority is not the one of the
    /// present certificate. Returns `None` if it is, or if the certificate is of files.
    ///
    /// # Errors
    /// If no certificate can be issued. The former one stays in use until the next call.
    pub fn follow(&self, authority: &Authority) -> Option<Result<(), String>> {
        let mut source = self.source();
        match &*source {
            Source::Authority(own) if own != authority => {}
            _ => return None,
        }
        let next = Source::Authority(authority.clone());
        let new = read(&next, &self.names);
        Some(new.map(|new| {
            *self.current() = new;
            *source = next;
        }))
    }
}

impl Source {
    fn stamps(&self) -> [Stamp; 2] {
        match self {
            Self::Files { certificate, key } => [certificate, key].map(|path| stamp(path)),
            Self::Authority(_) => [None; 2],
        }
    }
}

fn read(source: &Source, names: &[String]) -> Result<Current, String> {
    // A change after this line makes the next look at the files read them again.
    let stamps = source.stamps();
    let (chain, key) = match source {
        Source::Files { certificate, key } => (read_chain(certificate)?, read_key(key)?),
        Source::Authority(authority) => {
            let issued = authority.issue(names);
            let (certificate, key) =
                issued.map_err(|error| format!("no certificate can be issued: {error}"))?;
            (vec![certificate], key)
        }
    };
    let certificate = chain[0].clone();
    let config = settings(chain, key).map_err(|error| match source {
        Source::Files { certificate, key } => {
            let (certificate, key) = (certificate.display(), key.display());
            format!("the certificate in {certificate} and the key in {key}: {error}")
        }
        Source::Authority(_) => error.to_string(),
    })?;
    if let Some(name) = names.iter().find(|name| !is_valid_for(&certificate, name)) {
        return Err(format!(
            "the certificate of the server is not valid for `{name}`: name the server with \
             --tls-name as the certificate does, or get another certificate"
        ));
    }
    Ok(Current { config: Arc::new(config), certificate, last: LastRead::new(stamps) })
}

/// Returns the settings of TLS with this certificate, the intermediate certificates after it, and
/// its key.
fn settings(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_protocol_versions(&[&TLS13])?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn is_valid_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    match (parsed, ServerName::try_from(name)) {
        (Ok(parsed), Ok(name)) => verify_server_name(&parsed, &name).is_ok(),
        _ => false,
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read_pem(path, false)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(format!("{} contains no certificate in PEM", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    // The text of the parser's error could contain a part of the key.
    PrivateKeyDer::from_pem_slice(&read_pem(path, true)?)
        .map_err(|_| format!("{} contains no private key in PEM", path.display()))
}

/// Returns the content of a regular file with certificates or a key. A file that `is_secret` is
/// refused if other users have access to it.
///
/// # Errors
/// If the file cannot be read, is no regular file, has more than [`PEM_BYTES_MAX`] bytes, or is
/// exposed to other users.
pub fn read_pem(path: &Path, is_secret: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let file = private::open(path).map_err(failed)?;
    let file = file.ok_or_else(|| format!("{shown} is no regular file"))?;
    if is_secret {
        let checked = private::check(&file, None).map_err(failed)?;
        checked.map_err(|exposed| exposed.fault(path).to_string())?;
    }
    let mut text = Vec::new();
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > PEM_BYTES_MAX {
        return Err(format!("{shown} has more than {PEM_BYTES_MAX} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Files {
        directory: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn paths(&self) -> [PathBuf; 2] {
            ["cert.pem", "key.pem"].map(|name| self.directory.path().join(name))
        }

        fn source(&self) -> Source {
            let [certificate, key] = self.paths();
            Source::Files { certificate, key }
        }

        /// Replaces the files, as programs that renew certificates do.
        fn write(&self, certificate: &str, key: &str) {
            for (path, text) in self.paths().iter().zip([certificate, key]) {
                let new = path.with_extension("new");
                fs::write(&new, text).unwrap();
                fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
                fs::rename(&new, path).unwrap();
            }
        }
    }

    /// Returns a certificate and its key in PEM.
    fn signed(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        (made.cert.pem(), made.key_pair.serialize_pem())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_issued_certificate_has_the_names_of_the_server() {
        let source = || Source::Authority(Authority::draw().unwrap());
        let all = names(&["ec2.example", "10.1.2.3", "fd00::1"]);
        let certificates = Certificates::new(source(), all).unwrap();
        for name in ["ec2.example", "EC2.example", "10.1.2.3", "fd00::1", "fd00:0::1"] {
            assert!(certificates.has_name(name), "{name}");
        }
        for name in ["", "evil.example", "a.ec2.example", "10.1.2.4", "::1", "ec2.example:80"] {
            assert!(!certificates.has_name(name), "{name}");
        }
        assert!(certificates.reload().is_none());
        for bad in ["", "a b", "*.example", "[::1]", "a:1", "\u{e4}.example"] {
            let error = Certificates::new(source(), names(&[bad])).unwrap_err();
            assert!(error.contains("neither"), "{bad}: {error}");
        }
        let many = vec!["a.example".to_owned(); NAMES_MAX + 1];
        assert!(Certificates::new(source(), many[1..].to_vec()).is_ok());
        assert!(Certificates::new(source(), many).unwrap_err().contains("more than 100"));
    }

    /// A failure without another change of the files, such as too many open files at the time of
    /// the read, left the former content in use until the files changed again.
    #[test]
    fn regression_a_read_that_has_failed_is_tried_again() {
        let current = Mutex::new((0, LastRead::new(1)));
        let look = |result: Result<i32, String>| {
            let read = || result.map(|content| (content, LastRead::new(2)));
            read_again(&current, 2, |current| &mut current.1, read)
        };
        let fails = || Err("too many open files".to_owned());
        assert_eq!(look(fails()), Some(fails().map(|_: i32| ())));
        assert_eq!(look(fails()), None, "a failure that lasts is reported once");
        assert_eq!(current.lock().unwrap().0, 0);
        assert_eq!(look(Ok(7)), Some(Ok(())));
        assert_eq!(look(Ok(8)), None);
        assert_eq!(current.lock().unwrap().0, 7);
    }

    #[test]
    fn files_are_read_again_after_a_change_and_refused_files_change_nothing() {
        let files = Files::new();
        let (first, first_key) = signed("a.example");
        files.write(&first, &first_key);
        let certificates = Certificates::new(files.source(), names(&["a.example"])).unwrap();
        assert!(certificates.reload().is_none());
        // Only the certificate was replaced so far.
        let (second, second_key) = signed("a.example");
        files.write(&second, &first_key);
        let before = certificates.current().certificate.clone();
        assert!(certificates.reload().unwrap().is_err());
        assert!(certificates.reload().is_none());
        assert_eq!(certificates.current().certificate, before);
        files.write(&second, &second_key);
        assert_eq!(certificates.reload(), Some(Ok(())));
        assert_ne!(certificates.current().certificate, before);
        // A certificate for another name.
        let (other, other_key) = signed("b.example");
        files.write(&other, &other_key);
        let error = certificates.reload().unwrap().unwrap_err();
        assert!(error.contains("`a.example`"), "{error}");
        assert!(certificates.has_name("a.example") && !certificates.has_name("b.example"));
        fs::remove_file(&files.paths()[0]).unwrap();
        assert!(certificates.reload().unwrap().unwrap_err().contains("cert.pem"));
    }

    /// The source was replaced before its certificate was issued, so there was no second attempt.
    #[test]
    fn regression_an_authority_that_issues_no_certificate_is_tried_again() {
        let own = Authority::draw().unwrap();
        let all = names(&["a.example"]);
        let certificates = Certificates::new(Source::Authority(own.clone()), all).unwrap();
        let before = certificates.current().certificate.clone();
        let other = Authority::draw().unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&other.record().unwrap()).unwrap();
        record["Key"] = "no key".into();
        let broken = Authority::read(&record.to_string()).unwrap();
        for _ in 0..2 {
            assert!(certificates.follow(&broken).unwrap().is_err());
            assert_eq!(certificates.current().certificate, before);
        }
        assert!(certificates.follow(&own).is_none(), "its certificate is in use");
        assert_eq!(certificates.follow(&other), Some(Ok(())));
        assert_ne!(certificates.current().certificate, before);
        assert!(certificates.follow(&other).is_none());
    }

    #[test]
    fn bad_files_are_refused_with_the_cause() {
        let files = Files::new();
        let (certificate, key) = signed("a.example");
        let refused = |names: Vec<String>| Certificates::new(files.source(), names).unwrap_err();
        assert!(refused(Vec::new()).contains("cannot read"));
        files.write("", &key);
        assert!(refused(Vec::new()).contains("no certificate"));
        files.write(&certificate, "");
        assert!(refused(Vec::new()).contains("no private key"));
        let cut = &key[..key.len() / 2];
        files.write(&certificate, cut);
        assert!(refused(Vec::new()).contains("no private key"));
        files.write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key);
        assert!(!refused(Vec::new()).is_empty());
        files.write(&certificate, &key);
        let error = refused(names(&["b.example"]));
        assert!(error.contains("`b.example`") && error.contains("--tls-name"), "{error}");
        fs::set_permissions(&files.paths()[1], fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused(Vec::new()).contains("chmod 600"));
        files.write(&certificate, &"x".repeat((1 << 20) + 1));
        assert!(refused(Vec::new()).contains("more than"));
    }
}
