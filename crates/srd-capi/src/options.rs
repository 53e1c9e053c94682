//! Options for opening an endpoint: `srd_options`.
//!
//! The structure begins with its size, so that it can grow. A program that was compiled with an
//! older header gets the defaults for newer options. A program that was compiled with a newer
//! header is refused if it sets an option that this library does not support.

use std::ffi::c_char;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use srd_host::{KEY_FORM, MAKE_KEY, Options, read_key, read_key_file};
use srd_net::LocalAddress;
use srd_proto::Duration;

use crate::{Error, Outcome, Status};

/// `srd_options` in the layout of C.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // described in `srd.h`
pub struct RawOptions {
    pub size: usize,
    pub address: *const c_char,
    pub interface: *const c_char,
    pub job_key_file: *const c_char,
    pub job_key: *const u8,
    pub port: u16,
    pub paths: u16,
    pub packet_bytes_max: u32,
    pub answer_timeout_ms: u32,
    pub peer_timeout_ms: u32,
    pub operations_max: u32,
    pub receives_max: u32,
    pub events_max: u32,
    pub reserved: u32,
}

/// Size of `srd_options` in bytes in the first release; every later release has at least this size.
pub const OPTIONS_BYTES_MIN: usize = 72;
/// Largest size of `srd_options` in bytes; a larger size is an error of the program.
pub const OPTIONS_BYTES_MAX: usize = 4096;

const TIMEOUT_MS_MAX: u32 = 3_600_000;

impl Default for RawOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            address: std::ptr::null(),
            interface: std::ptr::null(),
            job_key_file: std::ptr::null(),
            job_key: std::ptr::null(),
            port: 0,
            paths: 0,
            packet_bytes_max: 0,
            answer_timeout_ms: 0,
            peer_timeout_ms: 0,
            operations_max: 0,
            receives_max: 0,
            events_max: 0,
            reserved: 0,
        }
    }
}

/// Options of a program, with copies of texts and key. Zero selects the default.
#[derive(Clone, Default)]
#[allow(missing_docs)] // described in `srd.h`
pub struct RequestedOptions {
    pub address: Option<String>,
    pub interface: Option<String>,
    pub job_key_file: Option<String>,
    pub job_key: Option<[u8; 32]>,
    pub port: u16,
    pub paths: u16,
    pub packet_bytes_max: u32,
    pub answer_timeout_ms: u32,
    pub peer_timeout_ms: u32,
    pub operations_max: u32,
    pub receives_max: u32,
    pub events_max: u32,
}

/// Checked options for opening an endpoint.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Options of the host.
    pub host: Options,
    /// Largest number of events in the queue.
    pub events_max: usize,
}

impl RequestedOptions {
    /// Checks all options. `locals`: the addresses of this machine.
    ///
    /// # Errors
    /// An error that describes the fault and a valid value.
    pub fn check(&self, locals: &[LocalAddress]) -> Outcome<Checked> {
        let timeout = |name, value, default| {
            let ms = within(name, value, default, 1, TIMEOUT_MS_MAX)?;
            Ok::<_, Error>(Duration::from_millis(ms.into()))
        };
        let packet_bytes_max = match self.packet_bytes_max {
            0 => None,
            bytes => {
                let bytes = within("packet_bytes_max", bytes, bytes, 1024, 65_000)?;
                u16::try_from(bytes).ok()
            }
        };
        let paths = within("paths", self.paths.into(), 64, 1, 256)?;
        let events_max = within("events_max", self.events_max, 8192, 1, 1 << 20)?;
        let host = Options {
            packet_bytes_max,
            paths: u16::try_from(paths).unwrap_or(u16::MAX),
            job_key: self.key()?,
            answer_timeout: timeout("answer_timeout_ms", self.answer_timeout_ms, 30_000)?,
            peer_timeout: timeout("peer_timeout_ms", self.peer_timeout_ms, 10_000)?,
            operations_max: within("operations_max", self.operations_max, 4096, 1, 1 << 20)?,
            receives_max: within("receives_max", self.receives_max, 1 << 16, 1, 1 << 20)?,
            ..Options::at(SocketAddr::new(self.ip(locals)?, self.port))
        };
        Ok(Checked { host, events_max: events_max as usize })
    }

    /// Returns the IP address for the endpoint.
    fn ip(&self, locals: &[LocalAddress]) -> Outcome<IpAddr> {
        match (&self.address, &self.interface) {
            (Some(_), Some(_)) => {
                Err(Error::invalid("address and interface are both given: give one of them"))
            }
            (Some(text), None) => address(text),
            (None, Some(name)) => {
                let of_it = locals.iter().filter(|local| local.interface == *name);
                first(of_it).ok_or_else(|| {
                    Error::invalid(format!(
                        "interface {name:?} is not there, is down, or has no usable address: see \
                         `ip addr`"
                    ))
                })
            }
            (None, None) => {
                let usual = first(locals.iter().filter(|local| !local.loopback));
                usual.or_else(|| first(locals.iter())).ok_or_else(|| {
                    Error::new(Status::System, "this machine has no address: see `ip addr`")
                })
            }
        }
    }

    fn key(&self) -> Outcome<Option<[u8; 32]>> {
        let Some(path) = &self.job_key_file else { return Ok(self.job_key) };
        if self.job_key.is_some() {
            let text = "job_key and job_key_file are both given: give one of them";
            return Err(Error::invalid(text));
        }
        let text = read_key_file(Path::new(path), MAKE_KEY)
            .map_err(|error| Error::new(Status::System, format!("job_key_file: {error}")))?;
        let key = read_key(&text)
            .ok_or_else(|| Error::invalid(format!("job_key_file {path}: {KEY_FORM}")))?;
        Ok(Some(key))
    }
}

fn address(text: &str) -> Outcome<IpAddr> {
    let ip: IpAddr = text.parse().map_err(|_| {
        Error::invalid(format!("address {text:?}: give an IP address, and the port in `port`"))
    })?;
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(Error::invalid(format!(
            "address {text:?}: give one address of this machine, for peers are told it"
        )));
    }
    Ok(ip)
}

/// Returns the first usable address, IPv4 before IPv6. A link-local address is not usable, since it
/// is valid only on one link.
fn first<'a>(locals: impl Iterator<Item = &'a LocalAddress>) -> Option<IpAddr> {
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    locals.map(|local| local.ip).filter(usable).min_by_key(IpAddr::is_ipv6)
}

fn within(name: &str, value: u32, default: u32, least: u32, most: u32) -> Outcome<u32> {
    let value = if value == 0 { default } else { value };
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::invalid(format!(
        "{name} = {value}: give a number from {least} to {most}, or 0 for the default"
    )))
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
