//! Kernel settings of a machine image, which is a root directory without a running kernel. The
//! settings that the kernel will get at boot are read from files, in the order of systemd-sysctl
//! and modprobe. For other settings, the kernel's default counts.

use super::files::Files;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Directories of sysctl files, in ascending order of precedence: a file replaces the files of the
/// same name in earlier directories.
const SYSCTL_DIRS: [&str; 4] =
    ["lib/sysctl.d", "usr/lib/sysctl.d", "usr/local/lib/sysctl.d", "etc/sysctl.d"];
const SYSCTL_FILE: &str = "etc/sysctl.conf";
/// Defaults of the kernel (Linux 6.1).
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

/// Returns the value that a kernel setting will have after boot.
pub(super) fn sysctl(files: &Files, key: &str) -> Option<String> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for (file, name) in of_settings(files) {
        if let Ok(text) = text(files, &file) {
            by_name.insert(name, text);
        }
    }
    let last = text(files, SYSCTL_FILE).unwrap_or_default();
    let texts = by_name.values().map(String::as_str).chain([last.as_str()]);
    let said = texts.filter_map(|text| said(text, key)).next_back();
    let default = || DEFAULTS.iter().find(|(known, _)| *known == key).map(|(_, v)| (*v).to_owned());
    said.or_else(default)
}

/// Returns the paths of the files of settings that cannot be read, each with the reason.
pub(super) fn unread(files: &Files) -> Vec<String> {
    let all = of_settings(files).map(|(file, _)| file).chain([SYSCTL_FILE.to_owned()]);
    let bad = all.filter_map(|file| match text(files, &file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Some(format!("/{file}: {error}")),
        _ => None,
    });
    bad.collect()
}

/// Returns the files in the directories of settings, each as name and path.
fn of_settings(files: &Files) -> impl Iterator<Item = (String, String)> {
    SYSCTL_DIRS.into_iter().flat_map(move |directory| {
        let names = files.entries(directory).into_iter().filter(|name| name.ends_with(".conf"));
        names.map(move |name| (format!("{directory}/{name}"), name))
    })
}

/// Returns the text of a file of settings. A link to `/dev/null` counts as an empty file: it
/// replaces a file of the same name in another directory.
fn text(files: &Files, file: &str) -> io::Result<String> {
    if files.link_target(file).is_some_and(|target| target == Path::new("/dev/null")) {
        return Ok(String::new());
    }
    files.text(file)
}

/// Returns the value of a key in a file, from the last line with this key.
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
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn later_and_stronger_files_win_and_the_rest_is_the_kernels() {
        let directory = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let files = Files::below(directory.path(), true);
        let of = |key| sysctl(&files, key);
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
        put("usr/lib/sysctl.d/70-c.conf", "net.core.rmem_max=1\n");
        assert_eq!(of("net.core.rmem_max").as_deref(), Some("1"));
        symlink("/dev/null", directory.path().join("etc/sysctl.d/70-c.conf")).unwrap();
        assert_eq!(of("net.core.rmem_max").as_deref(), Some("212992"));
        assert_eq!(unread(&files), [""; 0]);
        fs::create_dir(directory.path().join("etc/sysctl.d/80-d.conf")).unwrap();
        assert_eq!(unread(&files), ["/etc/sysctl.d/80-d.conf: no regular file"]);
    }
}
