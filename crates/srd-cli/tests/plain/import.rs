//! `srd import`: WireGuard files as users have them, and the resulting configuration, which `srd up
//! --check` checks.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SECRET: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PEER: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

fn srd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd")).args(arguments).output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Imports a WireGuard file, runs the commands in the comments of the resulting configuration, and
/// checks it with `srd up --check`. Returns the configuration, and the text on standard error.
fn imported(directory: &Path, file: &[u8]) -> (String, String) {
    let (from, to) = (directory.join("wg0.conf"), directory.join("srd0.toml"));
    let key = directory.join("private.key");
    fs::write(&from, file).unwrap();
    let _ = fs::remove_file(&key);
    let output = srd(&["import", from.to_str().unwrap(), "--key-file", key.to_str().unwrap()]);
    let (made, errors) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{errors}");
    fs::write(&to, &made).unwrap();
    // Before the key files exist, the check fails and refers to the commands in the comments.
    let unchecked = srd(&["up", "-c", to.to_str().unwrap(), "--check"]);
    let remedy = said(&unchecked.stderr);
    assert!(!unchecked.status.success() && remedy.contains("the comment above"), "{remedy}");
    for command in made.lines().filter_map(|line| line.strip_prefix("#   sed")) {
        let done = Command::new("sh").arg("-c").arg(format!("sed{command}")).status().unwrap();
        assert!(done.success(), "{command}");
    }
    let checked = srd(&["up", "-c", to.to_str().unwrap(), "--check"]);
    assert!(checked.status.success(), "{}{made}", said(&checked.stderr));
    (made, errors)
}

#[test]
fn a_file_with_a_mark_capitals_and_foreign_comments_is_imported_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "# a comment\r\n[INTERFACE]\r\nAddress = 10.66.0.2, fd66::2/64\r\n\
         privatekey = {SECRET}\r\nListenPort = 51820\r\nDNS = 10.66.0.1\r\n\
         PostUp = iptables -A FORWARD -i %i -j ACCEPT\r\n\r\n[peer]\r\nPublicKey={PEER} # b\r\n\
         AllowedIPs = 10.66.0.9/24, fd66::1/64\r\nAllowedIPs = 0.0.0.0/0, ::/0\r\n\
         Endpoint = [2001:db8::1]:51820\r\nPersistentKeepalive = 25\r\n"
    );
    let mut file = b"\xef\xbb\xbf".to_vec();
    file.extend(text.replace("a comment", "caf").as_bytes());
    // The byte 0xe9 makes this a comment in Latin-1, which is not valid UTF-8.
    file.extend(b"# \xe9\r\n");
    let (made, errors) = imported(directory.path(), &file);
    assert!(made.contains("listen = \"[::]:51820\""), "{made}");
    assert!(made.contains("\"10.66.0.0/24\", \"fd66::/64\", \"0.0.0.0/0\", \"::/0\""), "{made}");
    assert!(!made.contains(SECRET) && !made.contains("iptables"), "{made}");
    let key = fs::read_to_string(directory.path().join("private.key")).unwrap();
    assert_eq!(key.trim(), SECRET);
    for key in ["DNS", "PostUp", "PersistentKeepalive"] {
        assert!(errors.contains(key) && made.contains(&format!("# {key} of ")), "{errors}{made}");
    }
}

#[test]
fn what_wg_does_not_take_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wg0.conf");
    let refused = |bytes: &[u8], says: &[&str]| {
        fs::write(&file, bytes).unwrap();
        let output = srd(&["import", file.to_str().unwrap()]);
        let errors = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(says.iter().all(|word| errors.contains(word)), "{errors}");
        assert!(output.stdout.is_empty());
    };
    refused(b"[Interface]\nJmin = 40\n", &["line 2", "`Jmin`"]);
    refused(b"\xff\xfe[\0I\0", &["UTF-16", "iconv"]);
    refused(&vec![b'#'; 2 << 20], &["more than"]);
}
