use super::*;

fn locals() -> Vec<LocalAddress> {
    let local = |interface: &str, ip: &str, loopback| LocalAddress {
        interface: interface.into(),
        ip: ip.parse().unwrap(),
        loopback,
    };
    vec![
        local("lo", "127.0.0.1", true),
        local("eth0", "fe80::1", false),
        local("eth0", "2001:db8::1", false),
        local("eth0", "192.0.2.1", false),
        local("eth1", "fe80::2", false),
    ]
}

fn refusal(given: &RequestedOptions) -> String {
    given.check(&locals()).unwrap_err().to_string()
}

#[test]
fn nothing_is_needed() {
    let checked = RequestedOptions::default().check(&locals()).unwrap();
    assert_eq!(checked.host.address, "192.0.2.1:0".parse().unwrap());
    assert_eq!((checked.host.paths, checked.events_max), (64, 8192));
    assert!(checked.host.job_key.is_none() && checked.host.packet_bytes_max.is_none());
    let alone = RequestedOptions::default().check(&locals()[..1]).unwrap();
    assert_eq!(alone.host.address, "127.0.0.1:0".parse().unwrap());
    assert!(RequestedOptions::default().check(&[]).is_err());
}

#[test]
fn the_address_is_given_or_the_interfaces_own() {
    let at = |address: &str| RequestedOptions {
        address: Some(address.into()),
        port: 7,
        ..RequestedOptions::default()
    };
    let checked = at("::1").check(&locals()).unwrap();
    assert_eq!(checked.host.address, "[::1]:7".parse().unwrap());
    for wrong in ["0.0.0.0", "::", "224.0.0.1", "192.0.2.1:7", "here", ""] {
        assert!(refusal(&at(wrong)).contains(&format!("{wrong:?}")), "{wrong}");
    }
    let on = |name: &str| RequestedOptions {
        interface: Some(name.into()),
        ..RequestedOptions::default()
    };
    assert_eq!(on("eth0").check(&locals()).unwrap().host.address.ip().to_string(), "192.0.2.1");
    // The only address of this interface is valid only on its link.
    assert!(refusal(&on("eth1")).contains("\"eth1\""));
    assert!(refusal(&on("eth9")).contains("\"eth9\""));
    assert!(
        refusal(&RequestedOptions { address: Some("::1".into()), ..on("eth0") }).contains("both")
    );
}

#[test]
fn every_number_has_bounds() {
    type Set = fn(&mut RequestedOptions, u32);
    let numbers: [(&str, Set, u32, u32); 7] = [
        ("paths", |g, n| g.paths = u16::try_from(n).unwrap(), 1, 256),
        ("packet_bytes_max", |g, n| g.packet_bytes_max = n, 1024, 65_000),
        ("answer_timeout_ms", |g, n| g.answer_timeout_ms = n, 1, 3_600_000),
        ("peer_timeout_ms", |g, n| g.peer_timeout_ms = n, 1, 3_600_000),
        ("operations_max", |g, n| g.operations_max = n, 1, 1 << 20),
        ("receives_max", |g, n| g.receives_max = n, 1, 1 << 20),
        ("events_max", |g, n| g.events_max = n, 1, 1 << 20),
    ];
    for (name, set, least, most) in numbers {
        let mut given = RequestedOptions::default();
        for fits in [0, least, most] {
            set(&mut given, fits);
            assert!(given.check(&locals()).is_ok(), "{name} = {fits}");
        }
        for wrong in [most + 1, least - 1] {
            set(&mut given, wrong);
            if wrong != 0 {
                assert!(refusal(&given).contains(name), "{name} = {wrong}");
            }
        }
    }
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

#[test]
fn keys_come_as_bytes_or_from_files_and_bad_ones_are_refused_without_being_shown() {
    let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
    let given = RequestedOptions { job_key: Some(bytes), ..RequestedOptions::default() };
    assert_eq!(given.check(&locals()).unwrap().host.job_key, Some(bytes));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let path = file.to_str().unwrap().to_owned();
    let from_file =
        RequestedOptions { job_key_file: Some(path.clone()), ..RequestedOptions::default() };
    assert_eq!(from_file.check(&locals()).unwrap_err().status, Status::System);
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o644);
    assert!(refusal(&from_file).contains("chmod 600"), "others may read it");
    mode(0o600);
    assert_eq!(from_file.check(&locals()).unwrap().host.job_key, Some(bytes));
    assert!(
        refusal(&RequestedOptions { job_key: Some(bytes), ..from_file.clone() }).contains("both")
    );
    for wrong in ["secret", &KEY[1..], &KEY.replace('f', "g")] {
        std::fs::write(&file, wrong).unwrap();
        let refusal = refusal(&from_file);
        assert!(refusal.contains(&path) && !refusal.contains(wrong), "{refusal}");
    }
}
