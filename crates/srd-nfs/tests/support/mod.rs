//! A stand-in for an NFS server, and an authority that signs certificates.

#![allow(clippy::unwrap_used)] // support of tests

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
};
use srd_nfs::dial::Target;
use srd_nfs::record::{self, Record};
use srd_nfs::tls::Identity;
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Time limit of a wait.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

pub(crate) fn target(at: SocketAddr) -> Target {
    Target { host: at.ip().to_string(), port: at.port() }
}

/// Waits until `is` returns true, and fails after [`WAIT`].
#[track_caller]
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a call with `bytes` bytes after its head, which depend on `xid`.
pub(crate) fn call(xid: u32, bytes: usize) -> Record {
    let mut message = [xid.to_be_bytes(), [0; 4]].concat();
    let data = xid.to_be_bytes().into_iter().cycle();
    message.extend(data.zip((0..=250).cycle()).map(|(a, b): (u8, u8)| a ^ b).take(bytes));
    Record::of(&message).unwrap()
}

/// Returns the reply of the stand-in: to the NULL call the reply of RFC 5531, otherwise an echo.
pub(crate) fn reply(call: &Record) -> Record {
    let mut message = call.message().to_vec();
    message[7] = 1;
    if message.len() == 40 {
        message.truncate(24);
        message[8..].fill(0);
    }
    Record::of(&message).unwrap()
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Manner {
    Echo,
    Silent,
    Slow(Duration),
    EndsAfter(usize),
}

impl Server {
    pub(crate) fn echo() -> Self {
        Self::start(Manner::Echo)
    }

    pub(crate) fn silent() -> Self {
        Self::start(Manner::Silent)
    }

    pub(crate) fn slow(pause: Duration) -> Self {
        Self::start(Manner::Slow(pause))
    }

    /// Starts a stand-in that answers `calls` calls of a connection, and closes the connection at
    /// the next call without an answer.
    pub(crate) fn that_ends_after(calls: usize) -> Self {
        Self::start(Manner::EndsAfter(calls))
    }

    /// Returns the number of calls that arrived.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                thread::spawn(move || answer(&stream, manner, &counted));
            }
        });
        Self { address, calls }
    }
}

fn answer(mut stream: &TcpStream, manner: Manner, calls: &AtomicUsize) {
    let mut from = BufReader::new(stream);
    let mut answered = 0;
    while let Ok(Some(call)) = record::read(&mut from, 16 << 20) {
        calls.fetch_add(1, Ordering::SeqCst);
        match manner {
            Manner::Echo => {}
            Manner::Silent => continue,
            Manner::Slow(pause) => thread::sleep(pause),
            Manner::EndsAfter(most) if answered >= most => return,
            Manner::EndsAfter(_) => {}
        }
        answered += 1;
        if stream.write_all(reply(&call).bytes()).is_err() {
            return;
        }
    }
}

/// An issuer of certificates, with a directory for them.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    certificate: rcgen::Certificate,
    key: KeyPair,
    /// Serial number of the certificate in each file.
    serials: Mutex<BTreeMap<PathBuf, u64>>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // Issuers are distinguished by their names, so each issuer gets a different name.
        let name = directory.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { directory, certificate, key, serials: Mutex::default() }
    }

    /// Returns the file of the issuer's certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Issues a certificate that is valid for `days` days or, if negative, expired that many days
    /// ago.
    pub(crate) fn identity(&self, name: &str, days: i64) -> Identity {
        let file = |ending| self.directory.path().join(format!("{name}.{ending}"));
        let own = Identity { certificate: file("pem"), key: file("key") };
        self.renew(&own, name, days);
        own
    }

    pub(crate) fn renew(&self, own: &Identity, name: &str, days: i64) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let mut serials = self.serials.lock().unwrap();
        let serial = 1 + serials.values().max().unwrap_or(&0);
        serials.insert(own.certificate.clone(), serial);
        params.serial_number = Some(serial.into());
        let far = DAY * u32::try_from(days.abs()).unwrap();
        let now = SystemTime::now();
        params.not_before = (now - 10 * DAY).into();
        params.not_after = if days < 0 { now - far } else { now + far }.into();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        std::fs::write(&own.certificate, certificate.pem()).unwrap();
        std::fs::write(&own.key, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&own.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes a list of revoked certificates that contains `revoked`.
    pub(crate) fn revoke(&self, revoked: &[&Identity]) -> PathBuf {
        let serials = self.serials.lock().unwrap();
        let entry = |own: &&Identity| RevokedCertParams {
            serial_number: serials[&own.certificate].into(),
            revocation_time: SystemTime::now().into(),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: (SystemTime::now() - DAY).into(),
            next_update: (SystemTime::now() + DAY).into(),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.certificate, &self.key).unwrap();
        let file = self.directory.path().join("crl.pem");
        std::fs::write(&file, list.pem().unwrap()).unwrap();
        file
    }
}
