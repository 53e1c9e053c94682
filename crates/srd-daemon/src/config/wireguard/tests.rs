use super::*;
use crate::config::Config;
use crate::keys::SecretKey;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[path = "../../../../../fuzz/bodies/wireguard.rs"]
mod body;

const KEY: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
const SECRET: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const NAMES: Names<'static> = Names { file: "wg0.conf", interface: "srd0", key_file: "/k" };

fn key() -> String {
    SecretKey::draw_private().unwrap().public().to_string()
}

/// Converts a file of WireGuard, and checks that the result is a valid configuration once its key
/// files exist.
fn converted(text: &str) -> (Converted, Config) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wg0.conf");
    std::fs::write(&file, text).unwrap();
    let key_file = directory.path().join("private.key");
    let names = Names {
        file: file.to_str().unwrap(),
        interface: "srd0",
        key_file: key_file.to_str().unwrap(),
    };
    let made = convert(text, names).unwrap();
    run_comments(&made.text);
    let config = Config::parse(&made.text, &directory.path().join("srd0.toml"));
    let config = config.unwrap_or_else(|e| panic!("{e}\n{}", made.text));
    (made, config)
}

/// Runs the shell commands that the comments of a converted file contain.
fn run_comments(text: &str) {
    for command in text.lines().filter_map(|line| line.strip_prefix("#   sed")) {
        let mut shell = std::process::Command::new("sh");
        let done = shell.arg("-c").arg(format!("sed{command}")).status().unwrap();
        assert!(done.success(), "{command}");
    }
}

fn refused(text: &str, says: &[&str]) {
    let error = convert(text, NAMES).unwrap_err();
    assert!(says.iter().all(|word| error.contains(word)), "{error}");
    assert!(!error.contains(SECRET), "{error}");
}

#[test]
fn a_file_of_wireguards_becomes_one_that_is_right_and_holds_no_secret() {
    let secret = SecretKey::draw_private().unwrap().expose();
    let text = format!(
        "# mine\n[Interface]\nAddress = 10.0.0.1/24, fd00::1/64\nPrivateKey = {secret}\n\
         PostUp = iptables -A x\n\n[Peer]\nPublicKey = {KEY} # b\n\
         AllowedIPs = 10.0.0.2/32,fd00::2/128\nEndpoint = b.example:7471\n\
         PersistentKeepalive = 25\n"
    );
    assert!(is_meant(&text) && !is_meant("[interface]\n[[peer]]\n"));
    let (made, config) = converted(&text);
    let Converted { text: made, left_out } = made;
    assert!(!made.contains(&secret) && !made.contains("iptables"), "{made}");
    assert!(made.contains("# PostUp of '") && made.contains("' is not taken over"), "{made}");
    assert_eq!(left_out, ["PostUp", "PersistentKeepalive"]);
    assert_eq!((config.interface.listen.port(), config.interface.address.len()), (7471, 2));
    let [peer] = config.peers.as_slice() else { panic!("one peer") };
    assert_eq!(peer.allowed.len(), 2);
    assert_eq!(peer.host.as_ref().unwrap().host, "b.example");
    let ours = config.interface.protection.private_key().unwrap().expose();
    assert_eq!(ours, secret);
    refused("[Interface]\nrubbish\n", &["wg0.conf", "line 2"]);
    refused(&format!("PrivateKey = {SECRET}\n"), &["line 1", "in no table"]);
}

#[test]
fn regression_a_list_in_several_lines_is_one_list() {
    let text = format!(
        "[Interface]\nAddress = 10.0.0.1/24\nAddress = fd00::1/64\nPrivateKey = {SECRET}\n\
         [Peer]\nAllowedIPs = 10.0.0.2/32, 10.1.0.0/16\nPublicKey = {KEY}\n\
         AllowedIPs = fd00::2/128\n"
    );
    let made = convert(&text, NAMES).unwrap().text;
    assert!(made.contains(r#"address = ["10.0.0.1/24", "fd00::1/64"]"#), "{made}");
    let allowed = r#"allowed = ["10.0.0.2/32", "10.1.0.0/16", "fd00::2/128"]"#;
    assert!(made.contains(allowed), "{made}");
}

#[test]
fn regression_each_preshared_key_goes_to_the_file_of_its_own_peer() {
    let (one, two, three) = (key(), key(), key());
    let (first, second) = (SECRET.replace('d', "e"), SECRET.replace('d', "g"));
    let text = format!(
        "[Interface]\nAddress = 10.0.0.1/24\nPrivateKey = {SECRET}\n\
         [Peer]\nPublicKey = {one}\nAllowedIPs = 10.0.0.2/32\n\
         [Peer]\nPublicKey = {two}\nPresharedKey = {first}\nAllowedIPs = 10.0.0.3/32\n\
         [Peer]\nPublicKey = {three}\npresharedkey={second}\nAllowedIPs = 10.0.0.4/32\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wg's 0.conf");
    std::fs::write(&file, text.as_bytes()).unwrap();
    let key_file = directory.path().join("private.key");
    let names = Names {
        file: file.to_str().unwrap(),
        interface: "srd0",
        key_file: key_file.to_str().unwrap(),
    };
    let made = convert(&text, names).unwrap().text;
    run_comments(&made);
    let mut keys = Vec::new();
    for line in made.lines().filter(|line| line.contains("_key_file = ")) {
        let path = line.split('"').nth(1).unwrap();
        keys.push(std::fs::read_to_string(path).unwrap().trim().to_owned());
    }
    assert_eq!(keys, [SECRET, &first, &second]);
}

/// Notations of editors on other systems, such as a byte order mark, which `wg` accepts.
#[test]
fn marks_capitals_white_space_and_comments_make_no_difference() {
    let plain = format!(
        "[Interface]\nPrivateKey = {SECRET}\nAddress = 10.0.0.1/24\nListenPort = 51820\n[Peer]\n\
         PublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32\nEndpoint = [2001:db8::1]:51820\n"
    );
    let wanted = convert(&plain, NAMES).unwrap();
    let spaced = format!("{} ", plain.replace('=', " =\t"));
    for other in [
        format!("\u{feff}{}", plain.replace('\n', "\r\n")),
        format!("\u{feff}# a comment\r\n{}", plain.replace('\n', "\r\n")),
        plain.replace("[Interface]", " [ interFACE ] # ours").replace("[Peer]", "[PEER]"),
        plain.replace("PublicKey", "publickey").replace("AllowedIPs", "allowedips"),
        plain.replace("PublicKey = ", "Public Key=").replace("51820\n", "51820 # a port\n"),
        spaced.trim_end().to_owned(),
        plain.replace("[2001:db8::1]", "2001:db8::1"),
        plain.replace("10.0.0.2/32", "10.0.0.2").replace("10.0.0.1/24", "10.0.0.1/255.255.255.0"),
    ] {
        assert_eq!(convert(&other, NAMES).as_ref(), Ok(&wanted), "{other}");
        assert!(is_meant(&other), "{other}");
    }
    let (_, config) = converted(&format!("\u{feff}{}", plain.replace('\n', "\r\n")));
    assert_eq!(config.interface.protection.private_key().unwrap().expose(), SECRET);
}

#[test]
fn bits_beyond_a_prefix_are_masked_and_addresses_need_no_length() {
    let text = format!(
        "[Interface]\nAddress = 10.66.0.2\nAddress = fd66::2 10.66.0.2/24\nPrivateKey = {SECRET}\n\
         DNS = 10.66.0.1\nTable = off\nFwMark = 0xca6c\nMTU = 1320\nSaveConfig = true\n\
         PostUp = iptables -A FORWARD -i %i -j ACCEPT; iptables -t nat -A x\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.66.0.1/24,fd66::1/64\n\
         AllowedIPs = 192.168.7.9/24, 0.0.0.0/0, ::/0\nEndpoint = vpn.example.net:51820\n"
    );
    let (made, config) = converted(&text);
    let nets = |all: &[ipnet::IpNet]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(nets(&config.interface.address), ["10.66.0.2/32", "fd66::2/128"]);
    let allowed = ["10.66.0.0/24", "fd66::/64", "192.168.7.0/24", "0.0.0.0/0", "::/0"];
    assert_eq!(nets(&config.peers[0].allowed), allowed);
    assert_eq!(config.interface.table, crate::config::Table::Off);
    assert_eq!(made.left_out, ["MTU", "DNS", "FwMark", "SaveConfig", "PostUp"]);
}

/// Values that `wg` and `wg-quick` accept, among them those that switch a setting off.
#[test]
fn regression_values_that_switch_off_and_names_of_ports_are_taken() {
    let text = |own: &str, peer: &str| {
        format!(
            "[Interface]\nAddress = 10.0.0.1/24\nPrivateKey = {SECRET}\n{own}\n\
             [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32\n{peer}\n"
        )
    };
    let own = "FwMark = off\nSaveConfig = false\nTable = auto";
    let (made, _) = converted(&text(own, "PersistentKeepalive = off"));
    assert_eq!(made.left_out, Vec::<String>::new(), "{}", made.text);
    let (made, _) = converted(&text("MTU = 0x500", "PersistentKeepalive = 25"));
    assert_eq!(made.left_out, ["MTU", "PersistentKeepalive"]);
    assert!(made.text.contains("# MTU of ") && made.text.contains("mtu = 1280"), "{}", made.text);
    let (made, _) = converted(&text("", "PersistentKeepalive = 25\nPersistentKeepalive = 0"));
    assert_eq!(made.left_out, Vec::<String>::new(), "the last one counts");
    refused(&text("MTU = large", ""), &["line 4", "MTU is a number"]);
    refused(&text("SaveConfig = maybe", ""), &["line 4", "true or false"]);
    refused(&text("", "PersistentKeepalive = on"), &["line 8", "off or a number"]);
    let has_names = std::fs::read_to_string("/etc/services").is_ok_and(|s| s.contains("53/udp"));
    if has_names {
        let (_, config) = converted(&text("ListenPort = domain", "Endpoint = 192.0.2.1:domain"));
        assert_eq!(config.interface.listen.port(), 53);
        assert_eq!(config.peers[0].endpoint.unwrap().to_string(), "192.0.2.1:53");
    }
}

#[test]
fn the_socket_reaches_every_peer() {
    let with = |endpoints: &[&str]| {
        let mut text = format!("[Interface]\nAddress = 10.0.0.1/24\nPrivateKey = {SECRET}\n");
        for (number, endpoint) in (2..).zip(endpoints) {
            let (key, at) = (key(), format!("10.0.0.{number}"));
            text += &format!("[Peer]\nPublicKey = {key}\nAllowedIPs = {at}\n{endpoint}\n");
        }
        converted(&text).1.interface.listen.to_string()
    };
    let (v4, v6, name) =
        ("Endpoint = 192.0.2.1:1", "Endpoint = [2001:db8::1]:1", "Endpoint = b.example:1");
    assert_eq!(with(&[v4]), "0.0.0.0:7471");
    for endpoints in [&[v6][..], &[name], &[""], &[v6, name], &[v4, ""]] {
        assert_eq!(with(endpoints), "[::]:7471", "{endpoints:?}");
    }
}

#[test]
fn tables_and_keys_may_be_repeated_as_wg_takes_them() {
    let other = key();
    let text = format!(
        "[Interface]\nListenPort = 1\nPrivateKey = {KEY}\nAddress = 10.0.0.1/24\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32, 10.1.0.0/16\n\
         Endpoint = 192.0.2.1:1\n\
         [Interface]\nListenPort = 65500\nPrivateKey = {SECRET}\n\
         [Peer]\nPublicKey = {other}\nAllowedIPs = 10.1.0.0/16, 10.0.0.1/32\n\
         Endpoint = 192.0.2.2:1\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.2.0.0/16\n"
    );
    // Replaces the public key, which is this machine's own, by another one.
    let text = text.replace(KEY, &key());
    let (_, config) = converted(&text);
    assert_eq!(config.interface.listen.port(), 65_500);
    assert_eq!(config.interface.protection.private_key().unwrap().expose(), SECRET);
    let [one, two] = config.peers.as_slice() else { panic!("{:?}", config.peers) };
    assert_eq!(one.allowed, ["10.2.0.0/16".parse().unwrap()], "those of its last table");
    assert_eq!(one.endpoint.unwrap().to_string(), "192.0.2.1:1", "it was not named again");
    assert_eq!(two.allowed, ["10.1.0.0/16".parse().unwrap()], "named last, and not our own");
}

#[test]
fn what_wg_does_not_know_is_refused_by_name_and_line() {
    let interface = format!("[Interface]\nPrivateKey = {SECRET}\nAddress = 10.0.0.1/24\n");
    let peer = format!("{interface}[Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2\n");
    let after = |text: &str, more: &str| format!("{text}{more}\n");
    refused(&after(&interface, "Jc = 4"), &["line 4", "`Jc`", "[Interface]"]);
    refused(&after(&interface, "AllowedIPs = 10.0.0.2"), &["`AllowedIPs`", "[Interface]"]);
    refused(&after(&peer, "Address = 10.0.0.2"), &["line 7", "`Address`", "[Peer]"]);
    refused(&after(&peer, "[Other]"), &["no table [Other]"]);
    refused(&after(&peer, "Endpoint = 192.0.2.1"), &["Endpoint", "port"]);
    refused(&after(&peer, "Endpoint = b.example:no-such-service"), &["Endpoint", "port"]);
    refused(&after(&peer, "AllowedIPs = 10.0.0.2/33"), &["`10.0.0.2/33`", "AllowedIPs"]);
    refused(&after(&peer, "AllowedIPs ="), &["AllowedIPs has no value"]);
    refused(&after(&peer, "[Peer]\nAllowedIPs = 10.0.0.3"), &["line 7", "no PublicKey"]);
    refused(&after(&interface, "ListenPort = 70000"), &["ListenPort is a number"]);
    refused(&after(&interface, &format!("PrivateKey = {}x", SECRET)), &["PrivateKey is no key"]);
    refused(&after(&interface, "Address = ten"), &["`ten`", "Address"]);
}

#[test]
fn what_cannot_be_taken_over_is_said_and_the_rest_is() {
    let (one, two) = (key(), key());
    let text = format!(
        "[Interface]\n[Peer]\nPublicKey = {one}\n[Peer]\nPublicKey = {two}\nAllowedIPs = ::/0\n"
    );
    let made = convert(&text, NAMES).unwrap();
    assert_eq!(made.left_out.len(), 2, "{:?}", made.left_out);
    assert!(made.text.contains("wg show INTERFACE private-key"), "{}", made.text);
    assert!(made.text.contains("# address = "), "{}", made.text);
    assert!(made.text.contains(&format!("the peer {one}: it has no AllowedIPs")), "{}", made.text);
    assert!(made.text.contains(&two), "{}", made.text);
}

/// Regression: the error advised `srd genkey` for a missing key file, although the key of WireGuard
/// belongs there.
#[test]
fn regression_a_key_that_is_still_to_come_is_that_of_wireguard() {
    let text = format!(
        "[Interface]\nPrivateKey = {SECRET}\nAddress = 10.0.0.1/24\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2\nEndpoint = 192.0.2.1:1\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("private.key");
    let names = Names { key_file: key_file.to_str().unwrap(), ..NAMES };
    let made = convert(&text, names).unwrap().text;
    let error = Config::parse(&made, &directory.path().join("srd0.toml")).unwrap_err().to_string();
    assert!(error.contains("the comment above") && !error.contains("genkey"), "{error}");
    // If the key file exists but is wrong, the advice concerns the key file.
    std::fs::write(&key_file, SECRET).unwrap();
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Config::parse(&made, Path::new("srd0.toml")).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

/// Truncated files, files with changed bytes and files with repeated lines give an error or a text,
/// but no panic.
#[test]
fn no_text_makes_it_panic() {
    let text = format!(
        "\u{feff}[Interface]\r\nAddress = 10.0.0.1/24, fd00::1/64\nPrivateKey = {SECRET}\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32,::/0\nEndpoint = [::1]:7471 # x\n"
    );
    for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        let _ = convert(&text[..cut], NAMES);
        for with in ["\0", "[", "]", "=", "%", "/", ":", "é", "\n", "\"", "'"] {
            let _ = convert(&format!("{}{with}{}", &text[..cut], &text[cut..]), NAMES);
        }
    }
}

/// Runs the fuzz target's seeds, each also truncated and with single bytes changed.
#[test]
fn seeds_of_the_fuzzer_replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wireguard");
    let mut seeds = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        // Inputs that a fuzzer added locally are named by a hash; they are skipped.
        if path.file_name().is_some_and(|name| name.len() == 40) {
            continue;
        }
        seeds += 1;
        let bytes = std::fs::read(&path).unwrap();
        body::wireguard(&bytes);
        for at in 0..bytes.len() {
            body::wireguard(&bytes[..at]);
            for byte in *b"\0[=,/\"\n\xff" {
                let mut changed = bytes.clone();
                changed[at] = byte;
                body::wireguard(&changed);
            }
        }
    }
    assert!(seeds > 4);
}
