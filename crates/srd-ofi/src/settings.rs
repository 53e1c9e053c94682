//! The parameters `FI_SRD_*`, which `fi_info -g srd` shows.
//!
//! Each parameter is read and checked once per fabric. An invalid value is an error with a reason
//! in the log; no default replaces it.
//!
//! Without a key nothing is encrypted, and every host that reaches an endpoint's port is trusted:
//! this default is for trusted networks, like the TCP provider's. With a key, all processes of the
//! job must have it, and other hosts get no answer.

use std::ffi::{CStr, c_int};
use std::path::Path;

use srd_host::{KEY_FORM, MAKE_KEY, read_key, read_key_file};

use crate::abi::provider::{FI_PARAM_BOOL, FI_PARAM_INT, FI_PARAM_STRING};

/// A parameter as it is registered with libfabric.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the parameter, without `FI_SRD_`.
    pub name: &'static CStr,
    /// Type of the parameter: one of `FI_PARAM_*`.
    pub kind: c_int,
    /// Help text, with unit and default.
    pub help: &'static CStr,
}

/// Every parameter.
pub const PARAMETERS: [Parameter; 12] = [
    Parameter {
        name: c"iface",
        kind: FI_PARAM_STRING,
        help: c"The interfaces to use, by name or by IP address, with commas between (default: \
            the one with the default route, or the first; any if the application names it)",
    },
    Parameter {
        name: c"mtu",
        kind: FI_PARAM_INT,
        help: c"UDP payload bytes of the largest packet, 1024 to 65000 (default: what the \
            interface passes, up to jumbo frames)",
    },
    Parameter {
        name: c"paths",
        kind: FI_PARAM_INT,
        help: c"Paths to each peer, which are UDP source ports, 1 to 256 (default: 64; on \
            loopback, where there is one path, 1)",
    },
    Parameter {
        name: c"link_rate_mbps",
        kind: FI_PARAM_INT,
        help: c"Megabits per second of the link, 1 to 1000000 (default: what the system says of \
            the interface, which of virtual ones is not true). If it is given, data leaves no \
            faster: for a host with a link of its own",
    },
    Parameter {
        name: c"encryption",
        kind: FI_PARAM_BOOL,
        help: c"Encrypt what is sent and refuse what is not encrypted; needs key_file or job_key \
            (default: yes if there is one of these)",
    },
    Parameter {
        name: c"key_file",
        kind: FI_PARAM_STRING,
        help:
            c"File with the key that all processes of a job share: 64 hexadecimal digits. Only its \
            owner may read it (chmod 600)",
    },
    Parameter {
        name: c"job_key",
        kind: FI_PARAM_STRING,
        help: c"That key itself. Other users may see it where they see the environment of \
            processes: prefer key_file",
    },
    Parameter {
        name: c"answer_timeout_ms",
        kind: FI_PARAM_INT,
        help: c"Milliseconds until a peer that never answered fails what is sent to it \
            (default: 30000)",
    },
    Parameter {
        name: c"peer_timeout_ms",
        kind: FI_PARAM_INT,
        help: c"Milliseconds until a peer that fell silent fails what is sent to it \
            (default: 10000)",
    },
    Parameter {
        name: c"cq_size",
        kind: FI_PARAM_INT,
        help: c"Completions that a queue holds if the application does not say, 16 to 1048576 \
            (default: 8192)",
    },
    Parameter {
        name: c"shm",
        kind: FI_PARAM_BOOL,
        help: c"Exchange packets with endpoints of this machine and this user through memory \
            (default: yes)",
    },
    Parameter {
        name: c"layers",
        kind: FI_PARAM_BOOL,
        help: c"Let libfabric's own layers stand on datagram endpoints (srd;ofi_rxd): for \
            comparisons only, the native endpoint does what they add (default: no)",
    },
];

/// Source of the values of the parameters.
pub trait Values {
    /// Returns the value of a parameter of type string, if it is set.
    fn string(&self, name: &CStr) -> Option<String>;
    /// Returns the value of a parameter of type integer or boolean, if it is set.
    ///
    /// # Errors
    /// [`Illegible`] if the value is neither an integer nor a boolean.
    fn integer(&self, name: &CStr) -> Result<Option<c_int>, Illegible>;
}

/// Error: the value of a parameter does not fit the parameter's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegible;

/// Values of the parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The interfaces to use, by name or address, separated by commas; `None` for the default
    /// choice.
    pub interface: Option<String>,
    /// UDP payload bytes of the largest packet; `None` for as many as the interface passes.
    pub packet_bytes_max: Option<u16>,
    /// Number of paths to each peer, if it was set.
    pub paths: Option<u16>,
    /// Link rate in megabits per second; `None` if the parameter is not set.
    pub link_rate_mbps: Option<u32>,
    /// The key of the job; without one nothing is encrypted.
    pub job_key: Option<[u8; 32]>,
    /// Milliseconds until operations to a peer that has never answered fail.
    pub answer_timeout_ms: u32,
    /// Milliseconds until operations to a peer that no longer answers fail.
    pub peer_timeout_ms: u32,
    /// Default capacity of a completion queue, in completions.
    pub completions: usize,
    /// Whether packets to endpoints of this machine use shared memory.
    pub shared_memory: bool,
    /// Whether libfabric's own layers (`ofi_rxm`, `ofi_rxd`) may use datagram endpoints.
    pub layers: bool,
}

/// Leaves out the key, which must not appear in logs.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Settings");
        f.field("interface", &self.interface).field("encrypted", &self.job_key.is_some());
        f.finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads and checks every parameter.
    ///
    /// # Errors
    /// A text with the faulty value and the valid values, if a value is invalid.
    pub fn read(values: &impl Values) -> Result<Self, String> {
        let packet_bytes_max = match integer(values, c"mtu")? {
            None => None,
            Some(value) => Some(within(c"mtu", value, 1024, 65_000)?),
        };
        let link_rate_mbps = match integer(values, c"link_rate_mbps")? {
            None => None,
            Some(value) => Some(within(c"link_rate_mbps", value, 1, 1_000_000)?),
        };
        Ok(Self {
            interface: values.string(c"iface"),
            packet_bytes_max,
            paths: match integer(values, c"paths")? {
                None => None,
                Some(value) => Some(within(c"paths", value, 1, 256)?),
            },
            link_rate_mbps,
            job_key: key(values)?,
            answer_timeout_ms: number(values, c"answer_timeout_ms", 30_000, 3_600_000)?,
            peer_timeout_ms: number(values, c"peer_timeout_ms", 10_000, 3_600_000)?,
            completions: match integer(values, c"cq_size")? {
                None => 8192,
                Some(value) => within(c"cq_size", value, 16, 1 << 20)?,
            },
            shared_memory: integer(values, c"shm")?.is_none_or(|on| on != 0),
            layers: integer(values, c"layers")?.is_some_and(|on| on != 0),
        })
    }
}

/// Returns a number or boolean, if it is set. A value that cannot be parsed is an error, and does
/// not count as unset: otherwise `FI_SRD_ENCRYPTION=enabled` would continue without encryption.
fn integer(values: &impl Values, name: &CStr) -> Result<Option<c_int>, String> {
    values.integer(name).map_err(|Illegible| {
        let name = name.to_string_lossy().to_uppercase();
        format!("FI_SRD_{name}: give a number, or for a yes or no 1 or 0")
    })
}

fn number<T: TryFrom<c_int>>(
    values: &impl Values,
    name: &CStr,
    default: c_int,
    most: c_int,
) -> Result<T, String> {
    within(name, integer(values, name)?.unwrap_or(default), 1, most)
}

fn within<T: TryFrom<c_int>>(
    name: &CStr,
    value: c_int,
    least: c_int,
    most: c_int,
) -> Result<T, String> {
    let refusal = || {
        let name = name.to_string_lossy().to_uppercase();
        format!("FI_SRD_{name}={value}: give a number from {least} to {most}")
    };
    if !(least..=most).contains(&value) {
        return Err(refusal());
    }
    T::try_from(value).map_err(|_| refusal())
}

fn key(values: &impl Values) -> Result<Option<[u8; 32]>, String> {
    let key = match (values.string(c"key_file"), values.string(c"job_key")) {
        (Some(_), Some(_)) => {
            return Err("FI_SRD_KEY_FILE and FI_SRD_JOB_KEY are both set: give one".into());
        }
        (Some(path), None) => {
            let text = read_key_file(Path::new(&path), MAKE_KEY);
            let text = text.map_err(|error| format!("FI_SRD_KEY_FILE: {error}"))?;
            Some(read_key(&text).ok_or(format!("FI_SRD_KEY_FILE={path}: {KEY_FORM}"))?)
        }
        (None, Some(text)) => Some(read_key(&text).ok_or(format!("FI_SRD_JOB_KEY: {KEY_FORM}"))?),
        (None, None) => None,
    };
    match (integer(values, c"encryption")?, key.is_some()) {
        (Some(0), true) => Err("FI_SRD_ENCRYPTION=0 with a key: take one of them away".into()),
        (Some(on), false) if on != 0 => {
            Err("FI_SRD_ENCRYPTION=1 without a key: set FI_SRD_KEY_FILE".into())
        }
        _ => Ok(key),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns the settings if no parameter is set.
    pub(crate) fn nothing_set() -> Settings {
        read(&[]).unwrap()
    }

    struct Preset<'a>(BTreeMap<&'a str, &'a str>);

    impl Values for Preset<'_> {
        fn string(&self, name: &CStr) -> Option<String> {
            self.0.get(name.to_str().unwrap()).map(ToString::to_string)
        }

        fn integer(&self, name: &CStr) -> Result<Option<c_int>, Illegible> {
            let given = self.0.get(name.to_str().unwrap());
            given.map(|value| value.parse().map_err(|_| Illegible)).transpose()
        }
    }

    fn read(given: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(&Preset(given.iter().copied().collect()))
    }

    #[test]
    fn nothing_is_needed() {
        let settings = read(&[]).unwrap();
        assert_eq!((settings.paths, settings.job_key), (None, None));
        assert_eq!((settings.completions, settings.layers), (8192, false));
        assert!(read(&[("layers", "1")]).unwrap().layers);
        assert!(settings.shared_memory && !read(&[("shm", "0")]).unwrap().shared_memory);
    }

    #[test]
    fn every_number_has_bounds() {
        for (name, below, above) in [
            ("mtu", "1023", "65001"),
            ("paths", "0", "257"),
            ("link_rate_mbps", "0", "1000001"),
            ("answer_timeout_ms", "0", "3600001"),
            ("peer_timeout_ms", "-1", "3600001"),
            ("cq_size", "15", "1048577"),
        ] {
            for value in [below, above] {
                let refusal = read(&[(name, value)]).unwrap_err();
                assert!(refusal.contains(&name.to_uppercase()), "{refusal}");
            }
        }
        assert_eq!(read(&[("paths", "256")]).unwrap().paths, Some(256));
        assert_eq!(read(&[("mtu", "1024")]).unwrap().packet_bytes_max, Some(1024));
    }

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

    #[test]
    fn encryption_and_keys_must_agree() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(read(&[("job_key", KEY)]).unwrap().job_key, Some(bytes));
        assert_eq!(read(&[("job_key", KEY), ("encryption", "1")]).unwrap().job_key, Some(bytes));
        assert_eq!(read(&[("encryption", "0")]).unwrap().job_key, None);
        assert!(read(&[("encryption", "1")]).is_err());
        assert!(read(&[("encryption", "0"), ("job_key", KEY)]).is_err());
        assert!(read(&[("key_file", "k"), ("job_key", KEY)]).is_err());
    }

    #[test]
    fn regression_a_truth_value_that_cannot_be_read_is_refused_and_not_left_out() {
        for name in ["encryption", "layers"] {
            let refusal = read(&[(name, "enabled")]).unwrap_err();
            assert!(refusal.contains(&format!("FI_SRD_{}", name.to_uppercase())), "{refusal}");
        }
    }

    #[test]
    fn keys_come_from_files_and_bad_ones_are_refused_without_being_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, format!("{KEY}\n")).unwrap();
        let path = file.to_str().unwrap();
        let mode = |mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for others_may in [0o644, 0o640, 0o604, 0o620] {
            mode(others_may);
            let refusal = read(&[("key_file", path)]).unwrap_err();
            assert!(refusal.contains(&format!("chmod 600 {path}")), "{refusal}");
        }
        mode(0o600);
        assert!(read(&[("key_file", path)]).unwrap().job_key.is_some());
        let absent = read(&[("key_file", "/nowhere/key")]).unwrap_err();
        assert!(absent.contains("/nowhere/key"), "{absent}");
        for wrong in [
            "secret",
            &KEY[1..],
            "g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        ] {
            let refusal = read(&[("job_key", wrong)]).unwrap_err();
            assert!(refusal.contains("64 hexadecimal") && !refusal.contains(wrong), "{refusal}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let settings = read(&[("job_key", KEY)]).unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("encrypted: true") && !shown.contains("31"), "{shown}");
    }
}
