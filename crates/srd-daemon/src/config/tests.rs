use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Creates a directory that contains a file with a private key.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["private.key", "b.psk"] {
        let file = directory.path().join(name);
        fs::write(&file, SecretKey::draw_private().unwrap().expose()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    directory
}

const KEY_B: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
const KEY_C: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

fn whole() -> String {
    format!(
        r#"
[interface]
name = "srd7"
mode = "overlay"
address = ["10.77.0.1/24", "fd77::1/64"]
private_key_file = "private.key"
listen = "0.0.0.0:7471"
protection = "encrypted"
mtu = 8900
link_rate = "10G"
express = true
express_udp = false
dscp = 26

[expert]
paths = 32
udp_ordering = "bypass"
order_wait_ms = 50
queue_delay_ms = 1.5
table = 7000

[control]
socket = "/run/srd/other.sock"
group = "root"
group_captures = true

[metrics]
listen = "127.0.0.1:9471"

[[peer]]
name = "b"
public_key = "{KEY_B}"
preshared_key_file = "b.psk"
endpoint = "192.0.2.2:7471"
allowed = ["10.77.0.2/32", "fd77::2/128"]

[[peer]]
public_key = "{KEY_C}"
allowed = ["10.77.0.3", "10.78.0.0/16"]
express = false
"#
    )
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    let directory = directory();
    Config::parse(text, &directory.path().join("srd.toml"))
}

/// Returns the complete file with one part of its text replaced.
fn with(from: &str, to: &str) -> String {
    let text = whole();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[track_caller]
fn refused(text: &str, says: &[&str]) -> ConfigError {
    let error = parse(text).expect_err("it is accepted");
    for word in says {
        assert!(error.to_string().contains(word), "`{word}` is not in\n{error}");
    }
    assert!(!error.remedy.is_empty(), "{error}");
    error
}

#[test]
fn the_whole_file_is_understood() {
    let config = parse(&whole()).unwrap();
    let interface = &config.interface;
    assert_eq!((interface.name.as_str(), interface.mode), ("srd7", Mode::Overlay));
    assert_eq!(interface.address[0].to_string(), "10.77.0.1/24");
    assert!(interface.protection.private_key().is_some());
    assert_eq!(interface.listen.port(), 7471);
    assert_eq!((interface.mtu, interface.paths), (Some(8900), 32));
    assert_eq!(interface.link_rate_bps, Some(10_000_000_000));
    assert!(interface.express && !interface.express_udp);
    assert_eq!(interface.udp_ordering, UdpOrdering::Bypass);
    assert_eq!(interface.order_wait, Duration::from_millis(50));
    assert_eq!(interface.queue_delay, Duration::from_micros(1500));
    assert_eq!(interface.dscp, 26);
    assert_eq!(interface.table, Table::Number(7000));
    assert_eq!(config.control.socket, Path::new("/run/srd/other.sock"));
    assert!(config.control.is_named && config.control.group_captures);
    assert_eq!(config.control.group, Some(Group { name: "root".into(), id: 0 }));
    assert!(!config.metrics.unwrap().allow_remote);
    let [b, c] = config.peers.as_slice() else { panic!("two peers") };
    assert!(b.name == "b" && b.preshared_key.is_some() && b.express && b.express_udp);
    assert_eq!(c.name, "3p7bfXt9");
    assert_eq!(c.allowed[0].to_string(), "10.77.0.3/32");
    assert!(!c.express && c.endpoint.is_none());
}

#[test]
fn what_is_not_given_has_the_documented_default() {
    let config = parse(
        "[interface]\naddress = [\"10.0.0.1/8\"]\nprivate_key_file = \"private.key\"\n\
         listen = \"[::]:7471\"\n",
    )
    .unwrap();
    let interface = &config.interface;
    assert_eq!(interface.name, "srd0");
    assert_eq!((interface.mtu, interface.paths, interface.link_rate_bps), (None, 64, None));
    assert!(interface.express && interface.express_udp && !interface.express_tunnels);
    assert_eq!(interface.udp_ordering, UdpOrdering::Ordered);
    assert_eq!(interface.order_wait, Duration::from_millis(100));
    assert_eq!(interface.queue_delay, Duration::from_millis(5));
    assert_eq!(config.control.socket, Path::new("/run/srd/srd0.sock"));
    assert!(config.metrics.is_none() && config.peers.is_empty());
}

#[test]
fn slow_links_wait_longer_for_holes_unless_told_otherwise() {
    let wait_ms = |more: &str| {
        let text = "[interface]\naddress = [\"10.0.0.1/8\"]\nprivate_key_file = \"private.key\"\n\
                    listen = \"[::]:7471\"\n";
        parse(&format!("{text}{more}")).unwrap().interface.order_wait.as_millis()
    };
    for (rate, ms) in
        [("0", 100), ("10G", 100), ("200M", 100), ("50M", 335), ("20M", 838), ("1M", 1000)]
    {
        assert_eq!(wait_ms(&format!("link_rate = \"{rate}\"\n")), ms, "{rate}");
    }
    assert_eq!(wait_ms("link_rate = \"1M\"\n[expert]\norder_wait_ms = 7\n"), 7);
}

#[test]
fn an_error_names_file_line_and_column_and_shows_the_place() {
    let error = refused(&with("mode = \"overlay\"", "mode = \"overlap\""), &["overlap"]);
    let place = error.place.clone().unwrap();
    assert_eq!((place.line, place.column, place.width), (4, 8, 9));
    let text = error.to_string();
    assert!(text.contains("srd.toml:4:8: `mode` cannot be `overlap`"), "{text}");
    assert!(text.contains("  4 | mode = \"overlap\"\n    |        ^^^^^^^^^\n"), "{text}");
    assert!(text.ends_with("remedy: write \"overlay\" or \"transparent\" or \"cloud\""), "{text}");
}

#[test]
fn unknown_keys_wrong_types_and_broken_files_are_refused_at_their_place() {
    let error = refused(&with("address =", "adress ="), &["adress", "write `address`"]);
    assert_eq!(error.place.unwrap().line, 5);
    refused(&with("[control]", "[controls]"), &["controls", "write `control`"]);
    refused(&with("allowed = [\"10.77.0.2", "allow = [\"10.77.0.2"), &["allow", "allowed"]);
    refused(&with("mtu = 8900", "mtu = \"8900\""), &["srd.toml:9:7", "in quotes"]);
    refused(&with("express = true", "mtu = 9000"), &["srd.toml:11:", "keep one of the two"]);
    refused(&with("paths = 32", "paths ="), &["srd.toml:16:"]);
    refused("", &["no table [interface], and no table [cloud]"]);
    refused(&"[".repeat(10_000), &["srd.toml:1:"]);
}

#[test]
fn what_is_written_as_elsewhere_is_recognised() {
    let single = refused(&with("[[peer]]\nname", "[peer]\nname"), &["write [[peer]]"]);
    assert!(!single.what.contains("sequence"), "{single}");
    refused(&with("mtu = 8900", "mtu = \"8900\""), &["expected a whole number"]);
    refused(&with("order_wait_ms = 50", "order_wait_ms = \"50\""), &["expected a number"]);
    refused("[Interface]\nPrivateKey = x\n[Peer]\n", &["WireGuard", "srd import"]);
}

#[test]
fn keys_for_experts_are_refused_in_other_tables() {
    for (key, value) in [
        ("paths", "32"),
        ("udp_ordering", "\"bypass\""),
        ("order_wait_ms", "50"),
        ("queue_delay_ms", "1.5"),
        ("table", "\"off\""),
    ] {
        let text = with("dscp = 26", &format!("{key} = {value}"));
        let says = [&format!("`{key}` is a key of the table [expert]"), "under a line [expert]"];
        assert_eq!(refused(&text, &says).place.unwrap().line, 13);
        let alone = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                     protection = \"plain\"\n";
        assert!(parse(&format!("{alone}[expert]\n{key} = {value}\n")).is_ok(), "{key}");
        refused(&format!("{key} = {value}\n{alone}"), &says);
    }
    refused(&with("paths = 32", "dscp = 26"), &["unknown field `dscp`"]);
}

#[test]
fn bad_values_are_refused_with_what_is_good() {
    let long = format!("/run/srd/{}.sock", "x".repeat(100));
    let cases = [
        ("name = \"srd7\"", "name = \"a/b\"", "srd0"),
        ("name = \"srd7\"", "name = \"sixteen-letters-\"", "at most 15"),
        ("\"10.77.0.1/24\"", "\"10.77.0.1/33\"", "10.77.0.1/24"),
        ("\"10.77.0.1/24\"", "\"224.0.0.1/24\"", "no interface can have"),
        ("\"fd77::1/64\"", "\"10.77.0.1/16\"", "given twice"),
        ("mtu = 8900", "mtu = 500", "from 1280 to 65535"),
        ("paths = 32", "paths = 0", "from 1 to 256"),
        ("paths = 32", "paths = 257", "from 1 to 256"),
        ("0.0.0.0:7471", "0.0.0.0", "and a port"),
        ("0.0.0.0:7471", "0.0.0.0:0", "and a port"),
        ("0.0.0.0:7471", "0.0.0.0:65520", "at most 65504"),
        ("\"10G\"", "\"fast\"", "100G"),
        ("\"bypass\"", "\"sometimes\"", "\"ordered\" or \"bypass\""),
        ("order_wait_ms = 50", "order_wait_ms = -1", "from 0.1 to 10000"),
        ("order_wait_ms = 50", "order_wait_ms = nan", "from 0.1 to 10000"),
        ("queue_delay_ms = 1.5", "queue_delay_ms = inf", "from 0.05 to 1000"),
        ("dscp = 26", "dscp = 64", "from 0 to 63"),
        ("protection = \"encrypted\"", "protection = \"some\"", "\"encrypted\" or \"plain\""),
        ("/run/srd/other.sock", "other.sock", "absolute"),
        ("group = \"root\"", "group = \"nobody-has-this\"", "groupadd"),
        ("group = \"root\"\n", "", "add `group`"),
        ("127.0.0.1:9471", "0.0.0.0:9471", "allow_remote = true"),
        ("name = \"b\"", "name = \"b c\"", "peer's name"),
        ("name = \"b\"", "name = \"all\"", "every peer"),
        ("\"10.77.0.1/24\"", "\"10.77.0.0/24\"", "the address of all of 10.77.0.0/24"),
        ("\"10.77.0.1/24\"", "\"10.77.0.255/24\"", "the address of all of 10.77.0.0/24"),
        ("0.0.0.0:7471", "224.0.0.1:7471", "no address of one"),
        ("0.0.0.0:7471", "127.0.0.1:7471", "cannot be reached from 127.0.0.1:7471"),
        ("192.0.2.2:7471", "255.255.255.255:7471", "no peer is at"),
        ("192.0.2.2:7471", "224.0.0.1:7471", "no peer is at"),
        ("/run/srd/other.sock", &long, "more than 107 bytes"),
        ("192.0.2.2:7471", "0.0.0.0:7471", "no peer is at"),
        ("192.0.2.2:7471", "[2001:db8::1]:7471", "IPv4 socket"),
        ("192.0.2.2:7471", "192.0.2.300:7471", "a name and a port"),
        ("192.0.2.2:7471", "127.0.0.1:7480", "where we listen ourselves"),
        ("\"10.77.0.2/32\"", "\"10.77.0.2/24\"", "10.77.0.0/24"),
        ("\"10.77.0.2/32\"", "\"everything\"", "no IP prefix"),
        ("\"10.77.0.2/32\"", "\"10.77.0.1/32\"", "our own address"),
        ("[\"10.77.0.2/32\", \"fd77::2/128\"]", "[]", "`allowed` is missing"),
    ];
    for (from, to, says) in cases {
        let error = refused(&with(from, to), &[says]);
        assert!(error.place.is_some(), "{error}");
    }
    parse(&with("127.0.0.1:9471\"", "0.0.0.0:9471\"\nallow_remote = true")).unwrap();
    let named = |names: &str| {
        parse(&with("127.0.0.1:9471\"", &format!("127.0.0.1:9471\"\nhost_names = [{names}]")))
    };
    let config = named("\"Node7.Rack.example.\", \"figures\"").unwrap();
    assert_eq!(config.metrics.unwrap().host_names, ["node7.rack.example", "figures"]);
    for wrong in ["\"*.example\"", "\"a:80\"", "\"http://a/\"", "\"\""] {
        let error = named(wrong).unwrap_err().to_string();
        assert!(error.contains("no name of a host"), "{wrong}: {error}");
    }
    let many = "\"a\",".repeat(super::HOST_NAMES_MAX + 1);
    assert!(named(&many).unwrap_err().to_string().contains("more than 16 names"));
    parse(&with("\"10G\"", "\"0\"")).unwrap();
}

#[test]
fn peers_and_prefixes_that_are_given_twice_are_refused() {
    let second = with(&format!("public_key = \"{KEY_C}\""), &format!("public_key = \"{KEY_B}\""));
    refused(&second, &["`b` has this public key already"]);
    // A prefix of one peer may contain a longer prefix of another peer.
    parse(&with("[\"10.77.0.3\"", "[\"10.77.0.0/30\"")).unwrap();
    refused(
        &with("\"10.78.0.0/16\"", "\"10.77.0.3/32\""),
        &["10.77.0.3/32 is behind `3p7bfXt9` already"],
    );
    let twin = format!("public_key = \"{KEY_C}\"\nname = \"b\"");
    refused(&with(&format!("public_key = \"{KEY_C}\""), &twin), &["a peer `b` already"]);
    let twin = format!("public_key = \"{KEY_C}\"\nendpoint = \"192.0.2.2:7471\"");
    refused(&with(&format!("public_key = \"{KEY_C}\""), &twin), &["this endpoint already"]);
}

#[test]
fn keys_that_are_wrong_missing_or_open_to_others_are_refused_without_being_shown() {
    let error = refused(&with(KEY_B, "secret"), &["no public key", "srd pubkey"]);
    assert!(!error.what.contains("secret"));
    refused(&with(&format!("public_key = \"{KEY_B}\"\n"), ""), &["no `public_key`"]);
    refused(&with("private_key_file = \"private.key\"\n", ""), &["srd genkey"]);
    refused(&with("\"private.key\"", "\"none.key\""), &["no such file", "srd genkey"]);
    let directory = directory();
    let key = directory.path().join("private.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = Config::parse(&whole(), &directory.path().join("srd.toml")).unwrap_err();
    assert!(error.remedy.contains("chmod 600"), "{error}");
    assert_eq!(error.place.unwrap().line, 6);
}

#[test]
fn regression_a_missing_preshared_key_is_no_reason_to_make_a_private_one() {
    for text in [None, Some("no key")] {
        let directory = directory();
        let file = directory.path().join("b.psk");
        match text {
            None => fs::remove_file(&file).unwrap(),
            Some(text) => fs::write(&file, text).unwrap(),
        }
        let error = Config::parse(&whole(), &directory.path().join("srd.toml")).unwrap_err();
        assert!(error.remedy.contains("srd genpsk"), "{error}");
        assert!(error.remedy.contains("the peer's"), "{error}");
    }
}

#[test]
fn our_own_key_is_no_peer() {
    let directory = directory();
    let ours = SecretKey::load(&directory.path().join("private.key"), None).unwrap().public();
    let text = with(KEY_B, &ours.to_string());
    let error = Config::parse(&text, &directory.path().join("srd.toml")).unwrap_err();
    assert!(error.what.contains("our own public key"), "{error}");
}

#[test]
fn without_encryption_keys_are_not_needed_but_addresses_are() {
    let text = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                protection = \"plain\"\n[[peer]]\nendpoint = \"192.0.2.2:7471\"\n\
                allowed = [\"192.0.2.2/32\"]\n";
    let config = parse(text).unwrap();
    assert_eq!(config.peers[0].name, "192.0.2.2:7471");
    assert_eq!(config.interface.protection, Protection::Plain);
    refused(&text.replace("endpoint = \"192.0.2.2:7471\"\n", ""), &["`endpoint` is missing"]);
}

#[test]
fn an_endpoint_may_be_a_name_which_is_resolved_later() {
    let config = parse(&with("192.0.2.2:7471", "host.invalid:7471")).unwrap();
    let host = config.peers[0].host.clone().unwrap();
    assert_eq!((host.to_string().as_str(), config.peers[0].endpoint), ("host.invalid:7471", None));
    // A configuration contains the name of an endpoint, but not the address to which it resolves at
    // present.
    let mut running = config.clone();
    running.peers[0].endpoint = Some("192.0.2.9:7471".parse().unwrap());
    assert!(running.diff(&config).is_empty());
    let other = parse(&with("192.0.2.2:7471", "other.invalid:7471")).unwrap();
    assert!(running.diff(&other).changed[0].keys.contains(&"endpoint"));
    let twin = format!("public_key = \"{KEY_C}\"\nendpoint = \"host.invalid:7471\"");
    let text = with("192.0.2.2:7471", "host.invalid:7471");
    refused(&text.replace(&format!("public_key = \"{KEY_C}\""), &twin), &["this endpoint already"]);
    let plain = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                 protection = \"plain\"\n[[peer]]\nendpoint = \"b.example:7471\"\n\
                 allowed = [\"192.0.2.2/32\"]\n";
    refused(plain, &["without a key only its address tells a peer"]);
    // A regression: a key that is not used does not identify a peer either.
    let with_key =
        plain.replace("endpoint = \"b.example:7471\"", &format!("public_key = \"{KEY_B}\""));
    refused(&with_key, &["without a key only its address tells a peer", "is missing"]);
}

#[test]
fn a_node_and_its_peers_may_have_several_addresses() {
    let two = "listen = [\"192.0.2.1:7471\", \"198.51.100.1:7471\"]";
    let there = "endpoint = [\"192.0.2.2:7471\", \"198.51.100.2:7472\"]";
    let text = with("listen = \"0.0.0.0:7471\"", two);
    let text = text.replace("endpoint = \"192.0.2.2:7471\"", there);
    let config = parse(&text).unwrap();
    let words =
        |all: Vec<std::net::SocketAddr>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        words(config.interface.listens().collect()),
        ["192.0.2.1:7471", "198.51.100.1:7471"]
    );
    let known = words(config.peers[0].endpoints().collect());
    assert_eq!(known, ["192.0.2.2:7471", "198.51.100.2:7472"]);
    assert_eq!(config.peers[1].endpoints().count(), 0);
    // A list with one address means the same as that address without a list.
    let one = parse(&with("\"0.0.0.0:7471\"", "[\"0.0.0.0:7471\"]")).unwrap();
    assert_eq!(words(one.interface.listens().collect()), ["0.0.0.0:7471"]);
    // If the list of addresses changes, the endpoint has changed.
    let fewer = parse(&text.replace(", \"198.51.100.2:7472\"]", "]")).unwrap();
    assert!(config.diff(&fewer).changed[0].keys.contains(&"endpoint"));
    let less = parse(&text.replace(", \"198.51.100.1:7471\"]", "]")).unwrap();
    assert!(config.diff(&less).restart.contains(&"listen"));
}

#[test]
fn several_addresses_that_cannot_work_are_refused_at_their_place() {
    let listen = |list: &str| with("\"0.0.0.0:7471\"", list);
    let cases = [
        ("[]", "empty list"),
        ("7471", "an address in quotes, or a list"),
        ("[\"0.0.0.0:7471\", \"192.0.2.1:7471\"]", "every address of the machine"),
        ("[\"192.0.2.1:7471\", \"[::]:7471\"]", "`[::]:7471` means every address"),
        ("[\"192.0.2.1:7471\", \"192.0.2.9:7472\"]", "another port"),
        ("[\"192.0.2.1:7471\", \"192.0.2.1:7471\"]", "given twice"),
        ("[\"192.0.2.1:7471\", \"192.0.2.3\"]", "no address with a port"),
        (
            "[\"192.0.2.1:1\",\"192.0.2.3:1\",\"192.0.2.4:1\",\"192.0.2.5:1\",\"192.0.2.6:1\"]",
            "more than 4",
        ),
        ("[\"192.0.2.1:65530\", \"192.0.2.3:65530\"]", "at most 65504"),
    ];
    for (list, says) in cases {
        let error = refused(&listen(list), &[says]);
        assert_eq!(error.place.unwrap().line, 7, "{list}");
    }
    let two = listen("[\"192.0.2.1:7471\", \"198.51.100.1:7471\"]");
    refused(&two.replace("paths = 32", "paths = 1"), &["2 addresses share 1 paths"]);
    let there = |list: &str| two.replace("endpoint = \"192.0.2.2:7471\"", list);
    refused(&there("endpoint = [\"192.0.2.2:7471\", \"192.0.2.2:7471\"]"), &["given twice"]);
    let six = refused(
        &there("endpoint = [\"192.0.2.2:7471\", \"[2001:db8::1]:7471\"]"),
        &["IPv4 socket"],
    );
    assert!(!six.remedy.contains("[::]"), "it is refused beside other addresses: {}", six.remedy);
    refused(&there("endpoint = [\"192.0.2.2:7471\", \"0.0.0.0:7471\"]"), &["no peer is at"]);
    refused(&there("endpoint = [\"192.0.2.2:7471\", \"b.example:7471\"]"), &["the name alone"]);
    refused(&there("endpoint = [\"192.0.2.2:7471\", \"198.51.100.1:7471\"]"), &["ourselves"]);
    // `listen` has addresses of both families, so peers with either family can be reached.
    let mixed = listen("[\"192.0.2.1:7471\", \"[2001:db8::9]:7471\"]");
    let mixed = mixed.replace(
        "endpoint = \"192.0.2.2:7471\"",
        "endpoint = [\"192.0.2.2:7471\", \"[2001:db8::1]:7471\"]",
    );
    parse(&mixed).unwrap();
    let twin =
        format!("public_key = \"{KEY_C}\"\nendpoint = [\"192.0.2.7:7471\", \"192.0.2.2:7471\"]");
    refused(&with(&format!("public_key = \"{KEY_C}\""), &twin), &["this endpoint already"]);
}

#[test]
fn mode_and_address_must_agree() {
    refused(&with("mode = \"overlay\"", "mode = \"transparent\""), &["has no `address`"]);
    let line = "address = [\"10.77.0.1/24\", \"fd77::1/64\"]\n";
    refused(&with(line, ""), &["needs an `address`"]);
}

#[test]
fn peers_and_prefixes_are_bounded() {
    let mut text = String::from(
        "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\nprotection = \"plain\"\n",
    );
    for n in 0..PEERS_MAX {
        let (high, low) = (n / 256, n % 256);
        text += &format!(
            "[[peer]]\nendpoint = \"10.1.{high}.{low}:7471\"\nallowed = [\"10.1.{high}.{low}\"]\n"
        );
    }
    assert_eq!(parse(&text).unwrap().peers.len(), PEERS_MAX);
    text += "[[peer]]\nendpoint = \"10.2.0.0:7471\"\nallowed = [\"10.2.0.0\"]\n";
    refused(&text, &["more than 1024 peers"]);
    let list: Vec<String> =
        (0..=ALLOWED_MAX).map(|n| format!("\"10.9.{}.{}\"", n / 256, n % 256)).collect();
    refused(&with("\"10.78.0.0/16\"", &list.join(",")), &["more than 256 prefixes"]);
}

#[test]
fn a_file_that_is_absent_too_large_or_no_text_is_refused() {
    let directory = directory();
    let file = directory.path().join("srd.toml");
    assert!(Config::load(&file).unwrap_err().what.contains("no such file"));
    assert!(Config::load(directory.path()).unwrap_err().what.contains("a directory"));
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(Config::load(&file).unwrap_err().what.contains("not a text file"));
    fs::write(&file, "#".repeat(FILE_BYTES_MAX + 1)).unwrap();
    assert!(Config::load(&file).unwrap_err().what.contains("more than"));
    // A regression: the end of what is read may be inside a character.
    fs::write(&file, "é".repeat(FILE_BYTES_MAX)).unwrap();
    assert!(Config::load(&file).unwrap_err().what.contains("more than"));
    fs::write(&file, whole()).unwrap();
    assert_eq!(Config::load(&file).unwrap().file, file);
}

#[test]
fn a_difference_tells_peers_by_key_and_settings_by_what_they_need() {
    let directory = directory();
    let at = directory.path().join("srd.toml");
    let read = |text: &str| Config::parse(text, &at).unwrap();
    let old = read(&whole());
    assert!(old.diff(&old).is_empty());
    let new = read(
        &with("name = \"b\"", "name = \"bee\"")
            .replace("express_udp = false", "express_udp = true\nexpress_tunnels = true"),
    );
    let difference = old.diff(&new);
    assert_eq!(difference.changed[0].keys, ["name"]);
    assert_eq!(difference.live, ["express_udp", "express_tunnels"]);
    assert!(difference.added.is_empty() && difference.removed.is_empty());
    assert!(difference.restart.is_empty());
    let other = "yNpFWtMfWUMmYhW5mRmyHFJrKCmlhSQTR1hOfTwFDRg=";
    let new = read(&with(KEY_C, other).replace("mtu = 8900", "mtu = 1400"));
    let difference = old.diff(&new);
    assert_eq!((difference.added.len(), difference.removed.len()), (1, 1));
    assert_eq!(difference.restart, ["mtu"]);
    let report = difference.report();
    assert_eq!(report.removed, ["3p7bfXt9"]);
    assert!(report.to_string().contains("settings that wait for a restart: mtu"), "{report}");
    assert_eq!(ReloadReport::default().to_string(), "nothing has changed");
    // Regression: a take-over applies some settings for which a restart was demanded.
    let restart = ["workers", "processors"].map(str::to_owned).to_vec();
    let report = ReloadReport { restart, ..ReloadReport::default() }.to_string();
    assert!(report.contains("--take-over) or a restart: processors\n"), "{report}");
    assert!(report.ends_with("settings that wait for a restart: workers"), "{report}");
    // A new private key takes effect at once.
    let fresh = SecretKey::draw_private().unwrap();
    let mut new = old.clone();
    new.interface.protection = Protection::Encrypted(fresh);
    let difference = old.diff(&new);
    assert_eq!((difference.live, difference.restart.len()), (vec!["private_key_file"], 0));
}

#[test]
fn each_worker_has_ports_of_its_own_and_all_of_them_exist() {
    let workers = |n: &str| with("dscp = 26", &format!("dscp = 26\nworkers = {n}"));
    let config = parse(&workers("3")).unwrap();
    assert_eq!((config.interface.workers, config.interface.last_port()), (3, 7471 + 95));
    refused(&workers("0"), &["`workers` cannot be 0", "from 1 to 8"]);
    refused(&workers("9"), &["from 1 to 8"]);
    let high = workers("8").replace("0.0.0.0:7471", "0.0.0.0:65312");
    refused(&high, &["8 workers of 32 paths each do not fit behind port 65312", "at most 7"]);
    // Without `workers` in the file, there are only as many workers as there are free ports.
    let interface = parse(&with("0.0.0.0:7471", "0.0.0.0:65504")).unwrap().interface;
    assert_eq!((interface.workers, interface.last_port()), (1, u16::MAX));
    let difference = parse(&workers("3")).unwrap().diff(&parse(&workers("4")).unwrap());
    assert!(difference.restart.contains(&"workers"), "{difference:?}");
}

#[test]
fn af_xdp_needs_one_interface_and_one_worker() {
    let io = |line: &str, listen: &str| {
        with("dscp = 26", &format!("dscp = 26\n{line}")).replace("0.0.0.0:7471", listen)
    };
    let one = "192.0.2.1:7471";
    let choice = |text: &str| parse(text).map(|config| config.interface.io);
    assert_eq!(choice(&io("", one)).unwrap(), IoChoice::Udp);
    assert_eq!(choice(&io("io = \"auto\"", "0.0.0.0:7471")).unwrap(), IoChoice::Auto);
    let config = parse(&io("io = \"af_xdp\"", one)).unwrap();
    assert_eq!((config.interface.io, config.interface.workers), (IoChoice::AfXdp, 1));
    refused(&io("io = \"dpdk\"", one), &["`io` cannot be `dpdk`", "\"af_xdp\""]);
    refused(&io("io = \"af_xdp\"", "0.0.0.0:7471"), &["`listen` names none", "address"]);
    refused(&io("io = \"af_xdp\"\nworkers = 2", one), &["one worker, and 2", "workers = 1"]);
    let old = parse(&io("io = \"auto\"\nworkers = 1", one)).unwrap();
    let new = parse(&io("io = \"af_xdp\"\nworkers = 1", one)).unwrap();
    assert!(old.diff(&new).restart.contains(&"io"));
}

#[test]
fn threads_wait_as_the_file_says_and_as_a_reload_says() {
    let poll = |line: &str| parse(&with("dscp = 26", &format!("dscp = 26\n{line}")));
    let modes = [("", PollMode::Block), ("poll = \"block\"", PollMode::Block)];
    let others = [("adaptive", PollMode::ADAPTIVE), ("spin", PollMode::Spin)];
    let others = others.map(|(name, mode)| (format!("poll = \"{name}\""), mode));
    let others = others.iter().map(|(line, mode)| (line.as_str(), *mode));
    for (line, mode) in modes.into_iter().chain(others) {
        assert_eq!(poll(line).unwrap().interface.poll, mode, "{line}");
    }
    let text = with("dscp = 26", "dscp = 26\npoll = \"often\"");
    refused(&text, &["`poll` cannot be `often`", "\"block\" or \"adaptive\" or \"spin\""]);
    let difference = poll("").unwrap().diff(&poll("poll = \"spin\"").unwrap());
    assert!(!difference.restart.contains(&"poll"), "{difference:?}");
    assert!(difference.live.contains(&"poll"), "{difference:?}");
}

/// A file with commands that users other than root may change is refused at the line of the first
/// command. In an earlier version, the error had no line.
#[test]
fn regression_a_file_with_commands_of_another_user_is_refused_at_its_line() {
    let directory = directory();
    let path = directory.path().join("srd0.toml");
    let text = whole().replace("dscp = 26\n", "dscp = 26\npre_up = [\"true\"]\n");
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = Config::load(&path).unwrap_err();
    assert!(error.what.contains("has commands to run"), "{error}");
    let place = error.place.unwrap();
    assert_eq!((place.text.as_str(), place.column), ("pre_up = [\"true\"]", 11));
}
