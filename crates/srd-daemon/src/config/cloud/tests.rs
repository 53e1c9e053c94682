//! Tests of files with a table `[cloud]`.

use super::*;
use crate::config::{Config, HOSTS_MAX, PEERS_MAX, Protection};
use crate::keys::SecretKey;
use srd_net::PollMode;

/// Table of the interface of a host without encryption.
const PLAIN: &str = "[interface]\nmode = \"cloud\"\nprotection = \"plain\"\n";
const LISTEN: &str = "listen = \"10.0.0.1:7471\"\n";
const B: &str = "[[peer]]\nhost = \"b\"\nendpoint = \"10.0.0.2:1\"\n";

fn parse(text: &str) -> std::result::Result<Config, String> {
    Config::parse(text, Path::new("/etc/srd/srd0.toml")).map_err(|error| error.to_string())
}

/// Returns the configuration file of a host with a table `[cloud]`, followed by the text `more`.
fn host(more: &str) -> String {
    format!("{PLAIN}{LISTEN}[cloud]\n{more}")
}

/// The remedy named an address only, and a file with instances needs none.
#[test]
fn regression_an_interface_without_an_address_beside_instances_is_advised_the_mode_cloud() {
    let workers = "[interface]\nworkers = 2\n";
    let error = parse(&format!("{workers}[cloud]\n")).unwrap_err();
    assert!(error.contains("add mode = \"cloud\" if there are instances only"), "{error}");
    let error = parse(&format!("{workers}listen = \"0.0.0.0:7471\"\n")).unwrap_err();
    assert!(error.contains("add address = ") && !error.contains("cloud"), "{error}");
    let config = parse(&format!("{workers}mode = \"cloud\"\n[cloud]\n")).unwrap();
    assert_eq!((config.interface.mode, config.interface.workers), (Mode::Cloud, 2));
}

#[test]
fn each_key_is_read() {
    let text = r#"
        [interface]
        mode = "cloud"
        listen = ["10.0.0.1:7471", "10.0.1.1:7471"]
        protection = "plain"
        poll = "adaptive"
        link_rate = "10G"
        dscp = 46
        [expert]
        paths = 8
        scale = "1/100"
        credits = 600
        [cloud]
        vpc = "cloud.toml"
        host = "alpha"
        internet = true
        internet_private = true
        end_programs = true
        processors = 3
        [cloud.vhost_user]
        web = "/run/web.sock"
        [cloud.vhost_user_client]
        app = "app.sock"
        [[peer]]
        host = "beta"
        endpoint = ["10.0.0.2:7471", "10.0.1.2:7471"]
    "#;
    let config = parse(text).unwrap();
    let interface = &config.interface;
    assert_eq!((interface.mode, interface.workers, interface.paths), (Mode::Cloud, 1, 8));
    assert!(matches!(interface.poll, PollMode::Adaptive(_)));
    assert_eq!(interface.listens().count(), 2);
    let cloud = config.cloud.unwrap();
    assert_eq!(cloud.vpc.as_deref(), Some(Path::new("/etc/srd/cloud.toml")));
    assert_eq!((cloud.host.as_str(), cloud.scale, cloud.credits_s), ("alpha", 100, 600));
    assert!(cloud.internet && cloud.internet_private && cloud.end_programs);
    assert_eq!(cloud.processors, 3);
    let error = parse("[cloud]\nprocessors = 17\n").unwrap_err().to_string();
    assert!(error.contains("`processors` cannot be 17") && error.contains("0 to 16"), "{error}");
    assert_eq!(cloud.vhost_user["web"], Path::new("/run/web.sock"));
    assert_eq!(cloud.vhost_user["app"], Path::new("/etc/srd/app.sock"));
    assert_eq!(cloud.vhost_user_client, BTreeSet::from([String::from("app")]));
    let [beta] = config.peers.as_slice() else { panic!("one peer") };
    assert_eq!((beta.name.as_str(), beta.cloud_host.as_deref()), ("beta", Some("beta")));
    assert!(beta.allowed.is_empty() && beta.endpoints_further.len() == 1);
}

#[test]
fn instances_of_one_host_need_no_interface_and_no_key() {
    let config = parse("[cloud]\nvpc = \"/etc/cloud.toml\"\n").unwrap();
    assert_eq!((config.interface.mode, config.interface.workers), (Mode::Cloud, 1));
    assert_eq!(config.interface.protection, Protection::Plain);
    assert!(config.peers.is_empty() && config.interface.listen.ip().is_loopback());
    assert!(config.interface.is_alone());
    let cloud = config.cloud.unwrap();
    assert_eq!((cloud.host.as_str(), cloud.scale, cloud.credits_s), ("here", 1, 300));
    assert!(!cloud.internet);
    // A regression: the key was ignored.
    let key = "[interface]\nmode = \"cloud\"\nprivate_key_file = \"/none/key\"\n[cloud]\n";
    let error = parse(key).unwrap_err();
    assert!(error.contains("/none/key"), "{error}");
    let spins = parse("[interface]\nmode = \"cloud\"\npoll = \"spin\"\n[cloud]\n").unwrap();
    assert_eq!(spins.interface.poll, PollMode::Spin);
}

/// The keys were silently ignored.
#[test]
fn regression_keys_of_packets_between_hosts_are_refused_without_other_hosts() {
    const CLOUD: &str = "[interface]\nmode = \"cloud\"\n";
    for (lines, key) in [
        ("dscp = 46\n", "dscp"),
        ("link_rate = \"10G\"\n", "link_rate"),
        ("protection = \"encrypted\"\n", "protection"),
        ("[expert]\npaths = 8\n", "paths"),
        ("[expert]\norder_wait_ms = 5.0\n", "order_wait_ms"),
        ("[expert]\nqueue_delay_ms = 5.0\n", "queue_delay_ms"),
    ] {
        let error = parse(&format!("{CLOUD}{lines}[cloud]\n")).unwrap_err();
        let line = 2 + lines.lines().count();
        assert!(error.starts_with(&format!("/etc/srd/srd0.toml:{line}:")), "{error}");
        let wanted = format!("`{key}` is a setting of packets between hosts, and without `listen`");
        assert!(error.contains(&wanted) && error.contains("remedy: take it out, or"), "{error}");
        // With `listen`, they have an effect.
        let with = match key {
            "protection" => format!("{PLAIN}{LISTEN}[cloud]\n"),
            _ => format!("{PLAIN}{LISTEN}{lines}[cloud]\n"),
        };
        let config = parse(&with).unwrap();
        assert!(!config.interface.is_alone());
    }
    let expert = parse("[cloud]\n[expert]\npaths = 8\n").unwrap_err();
    assert!(expert.starts_with("/etc/srd/srd0.toml:3:"), "{expert}");
}

#[test]
fn an_overlay_may_have_hosts_of_the_cloud_among_its_peers() {
    let text = format!(
        "[interface]\naddress = [\"10.77.0.1/24\"]\nprotection = \"plain\"\n{LISTEN}[cloud]\n\
         {B}allowed = [\"10.77.0.2\"]\n[[peer]]\nhost = \"c\"\nendpoint = \"10.0.0.3:1\"\n\
         [[peer]]\nname = \"d\"\nendpoint = \"10.0.0.4:1\"\nallowed = [\"10.77.0.4\"]\n"
    );
    let config = parse(&text).unwrap();
    assert_eq!((config.interface.mode, config.interface.workers), (Mode::Overlay, 1));
    let several = text.replace("[cloud]", "workers = 2\n[cloud]");
    assert_eq!(parse(&several).unwrap().interface.workers, 2);
    let error = parse(&text.replace("[cloud]", "io = \"auto\"\n[cloud]")).unwrap_err();
    assert!(error.contains("remedy: write io = \"udp\""), "{error}");
    let peers = config.peers.iter();
    let peers: Vec<_> = peers.map(|p| (p.cloud_host.as_deref(), p.allowed.len())).collect();
    assert_eq!(peers, [(Some("b"), 1), (Some("c"), 0), (None, 1)]);
}

/// Without a number, instances have one worker, however many cores the machine has. The workers of
/// a node without other hosts have no ports.
#[test]
fn instances_have_one_worker_unless_the_file_has_another_number() {
    let workers = |text: &str| parse(text).unwrap().interface.workers;
    let with_hosts = |line: &str| format!("{PLAIN}{LISTEN}{line}[cloud]\n{B}");
    assert_eq!((workers(&with_hosts("")), workers(&with_hosts("workers = 3\n"))), (1, 3));
    assert_eq!(workers("[interface]\nmode = \"cloud\"\nworkers = 8\n[cloud]"), 8);
    assert_eq!((workers("[cloud]"), workers("[interface]\nmode = \"cloud\"\n[cloud]")), (1, 1));
    let many = format!("{}[expert]\npaths = 256\n", with_hosts("workers = 8\n"));
    let many = many.replace(LISTEN, "listen = \"10.0.0.1:65000\"\n");
    let error = parse(&many).unwrap_err();
    assert!(error.contains("8 workers of 256 paths each do not fit"), "{error}");
}

#[test]
fn regression_another_name_of_a_host_begins_the_session_anew() {
    let text = format!(
        "[interface]\naddress = [\"10.77.0.1/24\"]\nprotection = \"plain\"\n{LISTEN}[cloud]\n\
         [[peer]]\nname = \"d\"\nendpoint = \"10.0.0.4:1\"\nallowed = [\"10.77.0.4\"]\n"
    );
    let [none, b, c] = ["", "host = \"b\"\n", "host = \"c\"\n"]
        .map(|host| parse(&format!("{text}{host}")).unwrap());
    for (old, new) in [(&none, &b), (&b, &c), (&c, &none)] {
        let changed = old.diff(new).changed;
        assert_eq!(changed[0].keys, ["host"]);
        assert!(changed[0].is_anew(), "a worker learns the name with a new session");
    }
}

#[test]
fn errors_name_their_line_and_a_remedy() {
    let vhost = |text: &str| host(&format!("[cloud.vhost_user]\n{text}"));
    for (text, line, said) in [
        (host("hosts = 1"), 6, "unknown field `hosts`"),
        (host("host = \"\""), 6, "a host without a name"),
        (host("scale = \"1/100\""), 6, "`scale` is a key of the table [expert], not of this one"),
        (host("internet_private = true"), 6, "remedy: add internet = true"),
        (host("[expert]\nscale = \"1/0\""), 7, "remedy: write 1/N with N from 1 to 1000000"),
        (host("[expert]\ncredits = 4000"), 7, "remedy: write a number from 1 to 3600"),
        (format!("{PLAIN}{LISTEN}[expert]\nscale = \"2\""), 6, "there is no [cloud]"),
        (format!("{PLAIN}{LISTEN}"), 2, "remedy: add [cloud]"),
        (format!("[cloud]\n{B}"), 2, "another host, and no way to it"),
        (format!("{PLAIN}[cloud]\n{B}"), 1, "`listen` is missing"),
        (host("host = \"b\"\n") + B, 8, "`b` is this host"),
        (host(B) + B, 11, "`b` has this endpoint already"),
        (host(B) + &B.replace(":1", ":2"), 10, "`b` is this host of the cloud already"),
        (host("[[peer]]\nname = \"b\"\nendpoint = \"10.0.0.2:1\""), 6, "`host` is missing"),
        (host("[[peer]]\nhost = \"b\"\nendpoint = \"b.example:1\""), 8, "without a key only"),
        (host(B) + "allowed = [\"10.77.0.2\"]", 9, "remedy: take `allowed` out"),
        (host(B) + "public_key = \"AAAA\"", 9, "a key that nothing uses"),
        (format!("{PLAIN}{LISTEN}private_key_file = \"k\"\n[cloud]"), 5, "a key that nothing uses"),
        (format!("{PLAIN}{LISTEN}mtu = 1500\n[cloud]"), 5, "`mtu` is a setting of an interface"),
        (format!("{PLAIN}{LISTEN}express = true\n[cloud]"), 5, "mode = \"cloud\" has none"),
        (format!("{PLAIN}{LISTEN}workers = 9\n[cloud]"), 5, "from 1 to 8"),
        (format!("{PLAIN}address = [\"10.7.0.1/24\"]\n{LISTEN}[cloud]"), 4, "no `address`"),
        (vhost("a = \"s\"\nb = \"s\""), 8, "`a` has this socket already"),
        (vhost("a = \"s\"\n[cloud.vhost_user_client]\na = \"t\""), 9, "`a` has a socket already"),
    ] {
        let error = parse(&text).expect_err(&text);
        assert!(error.starts_with(&format!("/etc/srd/srd0.toml:{line}:")), "{text}\n{error}");
        assert!(error.contains(said), "{error}");
        assert!(error.contains("\n  remedy: "), "{error}");
    }
    let of_overlay = format!(
        "[interface]\nmode = \"transparent\"\nprotection = \"plain\"\n{LISTEN}{B}\
         allowed = [\"10.0.0.2\"]\n"
    );
    assert!(parse(&of_overlay).unwrap_err().contains("there is no [cloud]"));
}

/// A card receives packets from the internet under the name `(edge)`, and trusts these packets. So
/// no host may have this name.
#[test]
fn regression_no_host_has_the_name_of_the_edge() {
    for name in ["", "name = \"x\"\n"] {
        let peer = B.replace("host = \"b\"\n", &format!("{name}host = \"(edge)\"\n"));
        let error = parse(&host(&peer)).unwrap_err();
        assert!(error.contains("`(edge)` can be no peer's name"), "{error}");
    }
}

#[test]
fn keys_that_a_host_without_encryption_does_not_use_are_refused() {
    let key = SecretKey::draw_private().unwrap().public();
    let error = parse(&(host(B) + &format!("public_key = \"{key}\""))).unwrap_err();
    assert!(error.contains("a key that nothing uses"), "{error}");
}

#[test]
fn a_private_key_in_the_place_of_a_public_one_is_recognised() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let key = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    std::fs::write(&path, key).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).unwrap();
    let text = format!(
        "[interface]\nmode = \"cloud\"\n{LISTEN}private_key_file = \"{}\"\n[cloud]\n{B}\
         public_key = \"{key}\"\n",
        path.display()
    );
    let error = parse(&text).unwrap_err();
    assert!(error.starts_with("/etc/srd/srd0.toml:9:"), "{error}");
    assert!(error.contains("the private key of this host"), "{error}");
}

#[test]
fn a_cloud_has_more_hosts_than_an_overlay_has_peers() {
    let peer = |n: usize| {
        let [.., high, low] = n.to_be_bytes();
        format!("[[peer]]\nhost = \"h{n}\"\nendpoint = \"10.1.{high}.{low}:1\"\n")
    };
    let peers = |count: usize| (0..count).map(peer).collect::<String>();
    const { assert!(PEERS_MAX < HOSTS_MAX) };
    assert_eq!(parse(&host(&peers(HOSTS_MAX))).unwrap().peers.len(), HOSTS_MAX);
    let error = parse(&host(&peers(HOSTS_MAX + 1))).unwrap_err();
    assert!(error.contains("more than 4096 peers"), "{error}");
}
