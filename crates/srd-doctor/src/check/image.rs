//! A machine image: a root directory without a kernel. What a kernel would be told at boot is in
//! files, in the order in which systemd-sysctl and modprobe read them; what nobody says has the
//! kernel's default.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where settings are, from the weakest to the strongest: a file hides those of its name before.
const SYSCTL_DIRS: [&str; 4] =
    ["lib/sysctl.d", "usr/lib/sysctl.d", "usr/local/lib/sysctl.d", "etc/sysctl.d"];
const SYSCTL_FILE: &str = "etc/sysctl.conf";
/// What kernels do by themselves (Linux 6.1).
const DEFAULTS: [(&str, &str); 14] = [
    ("net.core.busy_poll", "0"),
    ("net.core.busy_read", "0"),
    ("net.core.rmem_default", "212992"),
    ("net.core.rmem_max", "212992"),
    ("net.core.wmem_default", "212992"),
    ("net.core.wmem_max", "212992"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.tcp_autocorking", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_limit_output_bytes", "1048576"),
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.ipv6.auto_flowlabels", "1"),
];

/// The value that a kernel setting will have.
pub(super) fn sysctl(root: &Path, key: &str) -> Option<String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for directory in SYSCTL_DIRS {
        for entry in fs::read_dir(root.join(directory)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path());
            if name.ends_with(".conf")
                && let Ok(text) = text
            {
                files.insert(name, text);
            }
        }
    }
    let last = fs::read_to_string(root.join(SYSCTL_FILE)).unwrap_or_default();
    let texts = files.values().map(String::as_str).chain([last.as_str()]);
    let said = texts.filter_map(|text| said(text, key)).next_back();
    let default = || DEFAULTS.iter().find(|(known, _)| *known == key).map(|(_, v)| (*v).to_owned());
    said.or_else(default)
}

/// What a file says of a key, in its last line about it.
pub(super) fn said(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let mut of_key = lines.filter(|(name, _)| {
        let name = name.trim().trim_start_matches('-').replace('/', ".");
        name == key
    });
    of_key.next_back().map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_and_stronger_files_win_and_the_rest_is_the_kernels() {
        let directory = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |key| sysctl(directory.path(), key);
        let key = "net.ipv4.tcp_autocorking";
        assert_eq!(of(key).as_deref(), Some("1"));
        put("usr/lib/sysctl.d/50-a.conf", "# no\nnet.ipv4.tcp_autocorking = 2\n");
        assert_eq!(of(key).as_deref(), Some("2"));
        put("etc/sysctl.d/50-a.conf", "net/ipv4/tcp_autocorking=3\n");
        assert_eq!(of(key).as_deref(), Some("3"));
        put("usr/lib/sysctl.d/60-b.conf", "-net.ipv4.tcp_autocorking=4\n");
        assert_eq!(of(key).as_deref(), Some("4"));
        put("etc/sysctl.conf", "net.ipv4.tcp_autocorking=0\n#net.ipv4.tcp_autocorking=5\n");
        assert_eq!(of(key).as_deref(), Some("0"));
        assert_eq!(of("net.ipv4.nosuch"), None);
    }
}
