//! Options for opening an endpoint, checked, with remedies in the errors.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use srd_host::{KEY_FORM, MAKE_KEY, read_key, read_key_file};
use srd_net::{BindOptions, PollMode};
use srd_proto::crypto::noise;
use srd_proto::{Admission, Protection};

/// Longest time of a setting or call in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// A key in the forms that Python code may pass.
#[derive(FromPyObject)]
pub(crate) enum KeyText {
    #[pyo3(transparent)]
    Digits(String),
    #[pyo3(transparent)]
    Raw(Vec<u8>),
}

/// The settings, under their names in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    bind: (String, u16),
    encrypt: bool,
    job_key: Option<KeyText>,
    job_key_file: Option<PathBuf>,
    private_key: Option<KeyText>,
    private_key_file: Option<PathBuf>,
    accept_anyone: bool,
    paths: u16,
    send_queue: u32,
    receive_queue: u32,
    packet_bytes_max: Option<u16>,
    link_rate_bps: Option<u64>,
    peer_timeout: f64,
    answer_timeout: Option<f64>,
    busy_poll: bool,
}

/// Options of an endpoint that were checked.
pub(crate) struct Checked {
    pub(crate) bind: BindOptions,
    pub(crate) public_key: Option<[u8; 32]>,
}

fn wrong<T>(text: impl Into<String>) -> PyResult<T> {
    Err(PyValueError::new_err(text.into()))
}

/// Parses the key of the setting `name`. No error contains the key.
pub(crate) fn key(given: &KeyText, name: &str) -> PyResult<[u8; 32]> {
    let key = match given {
        KeyText::Digits(text) => read_key(text),
        KeyText::Raw(bytes) => <[u8; 32]>::try_from(bytes.as_slice()).ok(),
    };
    key.map_or_else(|| wrong(format!("{name}: {KEY_FORM}, or 32 bytes")), Ok)
}

fn key_of_file(path: &Path, name: &str) -> PyResult<[u8; 32]> {
    let text = read_key_file(path, MAKE_KEY);
    let text = text.map_err(|error| PyOSError::new_err(format!("{name}: {error}")))?;
    read_key(&text).map_or_else(|| wrong(format!("{name} {}: {KEY_FORM}", path.display())), Ok)
}

/// Returns the private key in a file. A missing file is created with a new key.
fn lasting_key(path: &Path) -> PyResult<[u8; 32]> {
    let name = "private_key_file";
    if path.exists() {
        return key_of_file(path, name);
    }
    let key = srd_net::clock::seed()?;
    match write_key(path, &key) {
        Ok(()) => Ok(key),
        // Another process has created the file first.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.exists() => {
            key_of_file(path, name)
        }
        Err(error) => {
            let text = format!("{name}: cannot write {}: {error}", path.display());
            Err(PyOSError::new_err(text))
        }
    }
}

/// Creates the file of a key, atomically. The file must not exist yet.
fn write_key(path: &Path, key: &[u8; 32]) -> io::Result<()> {
    let hexadecimal =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (random, digits) = (srd_net::clock::seed()?, hexadecimal(key));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", hexadecimal(&random[..8])));
    let fresh = path.with_file_name(name);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    let written = made.and_then(|mut file| {
        writeln!(file, "{digits}")?;
        file.sync_all()
    });
    // A hard link never replaces an existing file.
    let linked = written.and_then(|()| std::fs::hard_link(&fresh, path));
    let removed = std::fs::remove_file(&fresh);
    linked.and(removed.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }))
}

/// Converts a time in seconds. `name`: name of the setting, for the error if the time is invalid.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    if !(0.0..=SECONDS_MAX).contains(&value) {
        return wrong(format!("{name} is {value}: give seconds, from 0 to {SECONDS_MAX}"));
    }
    Ok(Duration::from_secs_f64(value))
}

fn core_duration(name: &str, value: f64) -> PyResult<srd_proto::Duration> {
    let ns = seconds(name, value)?.as_nanos();
    Ok(srd_proto::Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

/// Returns the socket address of an IP address and port.
pub(crate) fn address(host: &str, port: u16) -> PyResult<SocketAddr> {
    match host.parse() {
        Ok(ip) => Ok(SocketAddr::new(ip, port)),
        Err(_) => wrong(format!("{host:?} is no IP address")),
    }
}

impl Options {
    /// Checks all options.
    ///
    /// # Errors
    /// A Python exception with the fault and its remedy, if an option is invalid.
    pub(crate) fn check(&self) -> PyResult<Checked> {
        let (protection, public_key) = self.protection()?;
        let mut bind = BindOptions::at(address(&self.bind.0, self.bind.1)?);
        bind.paths_anywhere = true;
        bind.receive_queue_datagrams = self.receive_queue;
        if !(1..=1 << 20).contains(&self.receive_queue) {
            let given = self.receive_queue;
            return wrong(format!("receive_queue is {given}: give 1 to {} datagrams", 1 << 20));
        }
        // A thread that polls before it sleeps takes processor time from the interpreter:
        // docs/perf-notes.md, 2026-11-25.
        bind.poll = if self.busy_poll { PollMode::Spin } else { PollMode::Block };
        if let Some(bps) = self.link_rate_bps {
            bind.link_rate_from_interface = false;
            bind.config.link_rate_bps = bps;
        }
        if let Some(bytes) = self.packet_bytes_max {
            bind.packet_bytes_from_interface = false;
            bind.config.packet_bytes_max = bytes;
        }
        let config = &mut bind.config;
        config.protection = protection;
        config.admission = if self.accept_anyone { Admission::Anyone } else { Admission::Known };
        config.paths = self.paths;
        config.send_queue_datagrams_max = self.send_queue;
        config.peer_timeout = core_duration("peer_timeout", self.peer_timeout)?;
        if let Some(value) = self.answer_timeout {
            config.answer_timeout = core_duration("answer_timeout", value)?;
        }
        // The state of an idle peer is kept longer than any peer is waited for. Otherwise,
        // datagrams that the peer sends again would be delivered twice.
        let longest = config.peer_timeout.max(config.answer_timeout);
        config.idle_reclaim = config.idle_reclaim.max(longest.times(2));
        Ok(Checked { bind, public_key })
    }

    fn protection(&self) -> PyResult<(Protection, Option<[u8; 32]>)> {
        let job = [self.job_key.is_some(), self.job_key_file.is_some()];
        let pair = [self.private_key.is_some(), self.private_key_file.is_some()];
        let given = job.iter().chain(&pair).filter(|given| **given).count();
        if given > 1 {
            return wrong(
                "give one of job_key, job_key_file, private_key and private_key_file, not several",
            );
        }
        if !self.encrypt {
            if given > 0 {
                return wrong("encrypt=False and a key are both given: leave one of them out");
            }
            if self.accept_anyone {
                return wrong("accept_anyone is for key pairs: a plain endpoint accepts anyone");
            }
            return Ok((Protection::Plain, None));
        }
        if job.contains(&true) {
            if self.accept_anyone {
                return wrong(
                    "accept_anyone is for key pairs: holders of the job key are accepted",
                );
            }
            let key = match (&self.job_key, &self.job_key_file) {
                (Some(text), _) => key(text, "job_key")?,
                (None, Some(path)) => key_of_file(path, "job_key_file")?,
                (None, None) => return wrong("no job key"),
            };
            return Ok((Protection::JobKey(key), None));
        }
        let private = match (&self.private_key, &self.private_key_file) {
            (Some(text), _) => key(text, "private_key")?,
            (None, Some(path)) => lasting_key(path)?,
            (None, None) => srd_net::clock::seed()?,
        };
        Ok((Protection::Static(private), Some(noise::public_key(&private))))
    }
}
