//! Settings from the environment variables `SRD_NCCL_*`, which `docs/nccl.md` lists.
//!
//! The variables have the same meaning as the libfabric provider's `FI_SRD_*`, and are checked as
//! strictly: an invalid value does not select the default, but causes an error with the reason in
//! NCCL's log. Without a key the traffic is not encrypted, and every host that reaches an
//! endpoint's port is trusted, as with NCCL's own socket transport. With a key, all processes of
//! the job need it, and other hosts get no answer.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use srd_host::{KEY_FORM, MAKE_KEY, Options, read_key, read_key_file};
use srd_proto::Duration;

/// Settings from the environment.
#[derive(Clone)]
pub struct Settings {
    /// Interfaces to use, by name or address; `None`: automatic selection.
    pub interfaces: Option<Vec<String>>,
    packet_bytes_max: Option<u16>,
    paths: Option<u16>,
    /// Link rate in megabits per second; `None`: the rate that the system reports.
    pub link_rate_mbps: Option<u32>,
    job_key: Option<[u8; 32]>,
    answer_timeout_ms: u32,
    peer_timeout_ms: u32,
}

/// Omits the key, which must not appear in logs.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Settings");
        f.field("interfaces", &self.interfaces).field("encrypted", &self.job_key.is_some());
        f.finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads and checks every variable. `value` returns the value of a variable.
    ///
    /// # Errors
    /// A text with the fault and a valid value, if a variable is invalid.
    pub fn read(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let value = |name: &str| value(name).filter(|text| !text.is_empty());
        let number = |name, least, most| number(&value, name, least, most);
        let names = |text: String| text.split(',').map(|name| name.trim().to_string()).collect();
        Ok(Self {
            interfaces: value("SRD_NCCL_IFACE").map(names),
            packet_bytes_max: number("SRD_NCCL_MTU", 1024, 65_000)?.map(narrow),
            paths: number("SRD_NCCL_PATHS", 1, 256)?.map(narrow),
            link_rate_mbps: number("SRD_NCCL_LINK_RATE_MBPS", 1, 1_000_000)?,
            job_key: key(&value)?,
            answer_timeout_ms: number("SRD_NCCL_ANSWER_TIMEOUT_MS", 1, 3_600_000)?
                .unwrap_or(30_000),
            peer_timeout_ms: number("SRD_NCCL_PEER_TIMEOUT_MS", 1, 3_600_000)?.unwrap_or(10_000),
        })
    }

    /// Returns the options of an endpoint at an address.
    #[must_use]
    pub fn options(&self, ip: IpAddr) -> Options {
        let usual = Options::at(SocketAddr::new(ip, 0));
        Options {
            packet_bytes_max: self.packet_bytes_max,
            // Loopback has only one path.
            paths: self.paths.unwrap_or(if ip.is_loopback() { 1 } else { usual.paths }),
            link_rate_bps: self.link_rate_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
            job_key: self.job_key,
            // Inside of a machine, NCCL uses its own shared memory.
            shared_memory: false,
            answer_timeout: Duration::from_millis(self.answer_timeout_ms.into()),
            peer_timeout: Duration::from_millis(self.peer_timeout_ms.into()),
            ..usual
        }
    }

    /// Whether endpoints encrypt their traffic.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.job_key.is_some()
    }
}

/// Narrows a number whose range was checked.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn number(
    value: &impl Fn(&str) -> Option<String>,
    name: &str,
    least: u32,
    most: u32,
) -> Result<Option<u32>, String> {
    let Some(text) = value(name) else { return Ok(None) };
    let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
    let refusal = || format!("{name}={text}: give a number from {least} to {most}");
    number.map(Some).ok_or_else(refusal)
}

fn key(value: &impl Fn(&str) -> Option<String>) -> Result<Option<[u8; 32]>, String> {
    let of = |name: &'static str| value(name).map(|path| (name, path));
    let key = match of("SRD_NCCL_KEY_FILE").or_else(|| of("FI_SRD_KEY_FILE")) {
        None => None,
        Some((name, path)) => {
            let text = read_key_file(Path::new(&path), MAKE_KEY);
            let text = text.map_err(|error| format!("{name}: {error}"))?;
            Some(read_key(&text).ok_or(format!("{name}={path}: {KEY_FORM}"))?)
        }
    };
    match (value("SRD_NCCL_ENCRYPTION").as_deref(), key.is_some()) {
        (Some("0"), true) => {
            Err("SRD_NCCL_ENCRYPTION=0 with a key file: take one of them away".into())
        }
        (Some("1"), false) => {
            Err("SRD_NCCL_ENCRYPTION=1 without a key: set SRD_NCCL_KEY_FILE".into())
        }
        (Some("0" | "1") | None, _) => Ok(key),
        (Some(text), _) => Err(format!("SRD_NCCL_ENCRYPTION={text}: give 1 or 0")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) fn read(given: &[(&str, &str)]) -> Result<Settings, String> {
        let of = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        Settings::read(of)
    }

    #[test]
    fn nothing_is_needed() {
        let settings = read(&[]).unwrap();
        assert!(settings.interfaces.is_none() && !settings.is_encrypted());
        assert_eq!(settings.options("10.0.0.1".parse().unwrap()).paths, 64);
        assert_eq!(settings.options("127.0.0.1".parse().unwrap()).paths, 1);
        assert!(read(&[("SRD_NCCL_MTU", "")]).is_ok(), "empty is as good as not set");
    }

    #[test]
    fn every_number_has_bounds() {
        for (name, below, above) in [
            ("SRD_NCCL_MTU", "1023", "65001"),
            ("SRD_NCCL_PATHS", "0", "257"),
            ("SRD_NCCL_LINK_RATE_MBPS", "0", "1000001"),
            ("SRD_NCCL_ANSWER_TIMEOUT_MS", "0", "3600001"),
            ("SRD_NCCL_PEER_TIMEOUT_MS", "-1", "3600001"),
        ] {
            for value in [below, above, "many"] {
                let refusal = read(&[(name, value)]).unwrap_err();
                assert!(refusal.contains(name) && refusal.contains(value), "{refusal}");
            }
        }
        let settings = read(&[("SRD_NCCL_LINK_RATE_MBPS", "100")]).unwrap();
        let options = settings.options("10.0.0.1".parse().unwrap());
        assert_eq!(options.link_rate_bps, Some(100_000_000));
    }

    #[test]
    fn keys_come_from_files_that_others_cannot_read_and_the_provider_s_name_serves_as_well() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "5".repeat(64)).unwrap();
        let path = file.to_str().unwrap();
        let mode = |mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(read(&[("SRD_NCCL_KEY_FILE", path)]).unwrap_err().contains("chmod 600"));
        mode(0o600);
        for name in ["SRD_NCCL_KEY_FILE", "FI_SRD_KEY_FILE"] {
            let settings = read(&[(name, path)]).unwrap();
            assert!(settings.is_encrypted());
            assert!(!format!("{settings:?}").contains("55"), "keys are not for logs");
            assert!(read(&[(name, path), ("SRD_NCCL_ENCRYPTION", "0")]).is_err());
        }
        std::fs::write(&file, "secret").unwrap();
        let refusal = read(&[("SRD_NCCL_KEY_FILE", path)]).unwrap_err();
        assert!(refusal.contains("64 hexadecimal") && !refusal.contains("secret"), "{refusal}");
    }

    #[test]
    fn encryption_that_is_asked_for_needs_a_key() {
        assert!(read(&[("SRD_NCCL_ENCRYPTION", "1")]).is_err());
        assert!(read(&[("SRD_NCCL_ENCRYPTION", "enabled")]).is_err());
        assert!(!read(&[("SRD_NCCL_ENCRYPTION", "0")]).unwrap().is_encrypted());
    }
}
