//! `mount.srd-nfs` and `umount.srd-nfs`, as mount(8) and umount(8) call them, in separate
//! namespaces. The kernel may lack NFS. So scripts named `mount` and `umount` replace the programs
//! of the system, and the script `mount` makes a call through the proxy as the kernel would.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod place;

use place::{FAILS_TO_START, NfsHost, SYSTEMCTL, ready};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Regression: when two file systems were mounted, the second mount reported that the port belonged
/// to another mount.
#[test]
fn regression_each_mount_has_a_port_and_a_proxy_of_its_own() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    // The three mounts start at the same time, as at boot.
    let started: Vec<_> =
        ["a", "b", "c"].map(|name| place.mount(name, "plain", &[]).spawn().unwrap()).into();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let ports = place.ports();
    assert_eq!(ports.len(), 3, "{ports:?}");
    assert!(ports[0] > 225 && ports[2] < 600, "{ports:?}");
    let mounts = place.noted("mount");
    for port in &ports {
        let words =
            format!("port={port},uhelper=srd-nfs,nosuid,nodev,vers=4.1,hard 127.0.0.1:/export");
        let of_port = mounts.iter().filter(|line| line.contains(&words)).count();
        assert_eq!(of_port, 1, "{words}: {mounts:?}");
    }
    assert_eq!(place.noted("probes").len(), 3, "each mount reached the server");
    // For each mount, `mount.srd-nfs` and the script `mount` made one call each, from ports that
    // only root may bind.
    let calls = place.calls.lock().unwrap().clone();
    assert!(calls.len() == 6 && calls.iter().all(|port| *port < 1024), "{calls:?}");
    // The proxies run as the user srd-nfs, whose only privilege is to bind ports below 1024.
    let status = place.must("cat /proc/$(cat /run/srd-nfs/*/pid | head -n1)/status");
    for line in ["Uid:\t64999\t64999\t64999\t64999", "CapPrm:\t0000000000000400", "NoNewPrivs:\t1"]
    {
        assert!(status.contains(line), "{line}: {status}");
    }
}

/// Regression: if another user's program listened at the port before the proxy, root mounted from
/// that program.
#[test]
fn regression_another_user_that_listens_first_is_not_mounted_from() {
    if !ready() {
        return;
    }
    // This systemd starts nothing, and reports success.
    let place = NfsHost::with_systemd(FAILS_TO_START);
    place.program("systemd-run", "exit 0\n");
    let evil = place.serve("127.0.0.1:6666");
    let _nobody = place.nobody(&[
        "srd",
        "nfs-proxy",
        "--plain",
        "--any-user",
        "--unprivileged-port",
        "--listen",
        "127.0.0.1:20049",
        "127.0.0.1:6666",
    ]);
    // If every user may bind ports below 1024, another user may have taken any of them.
    place.must("echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let taken = ["226", "227"].map(|port| {
        let at = format!("127.0.0.1:{port}");
        let words =
            ["srd", "nfs-proxy", "--plain", "--any-user", "--listen", &at, "127.0.0.1:6666"];
        place.nobody(&words)
    });
    place.eventually("nobody listens", || place.ports() == [226, 227]);
    let error = place.refuses("a", "plain", &[], 32);
    assert!(
        error.contains("the proxy does not listen at") || error.contains("did not start"),
        "{error}"
    );
    let error = place.refuses("a", "plain,proxyport=226", &[], 32);
    assert!(error.contains("port 226 is in use"), "{error}");
    assert!(place.noted("mount").is_empty(), "nothing was mounted");
    assert_eq!(evil.lock().unwrap().len(), 0);
    drop(taken);
}

/// Regression: through the proxy of a mount, any user of the machine could act as any other user on
/// the NFS server.
#[test]
fn regression_other_users_cannot_use_the_proxy_of_a_mount() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    place.mounts("a", "plain", &[]);
    let port = place.ports()[0];
    let probe = format!("srd nfs-proxy --plain --probe 127.0.0.1:{port}");
    let before = place.calls.lock().unwrap().len();
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    assert!(!place.sh(&format!("{user} {probe}")).status.success());
    assert_eq!(place.calls.lock().unwrap().len(), before, "the server had no call of it");
    place.must(&probe);
    place.mounts("b", "plain,anyuser,noresvport", &[]);
    let port = place.ports()[1];
    place.must(&format!("{user} srd nfs-proxy --plain --probe 127.0.0.1:{port}"));
    let error = place.refuses("c", "plain,noresvport", &[], 1);
    assert!(error.contains("anyuser"), "{error}");
}

/// Regression: after a proxy had ended, any user could bind its port for a second, until the proxy
/// ran again.
#[test]
fn regression_the_port_of_a_mount_is_held_while_its_proxy_starts_again() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    place.mounts("a", "plain", &[]);
    let port = place.ports()[0];
    let keeper = place.must(&format!("cat /run/srd-nfs/{port}/pid"));
    let half = || place.must(&format!("ps -o pid= --ppid {keeper}")).trim().to_owned();
    let before = half();
    place.must(&format!("kill -9 {before}"));
    assert_eq!(place.ports(), [port]);
    // The call succeeds: it waits until the next proxy accepts it.
    place.must(&format!("srd nfs-proxy --plain --probe 127.0.0.1:{port}"));
    assert_ne!(half(), before);
    assert_eq!(place.ports(), [port]);
}

#[test]
fn an_unmount_ends_the_proxy_of_its_mount_alone() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    place.mounts("a", "plain", &[]);
    let first = place.ports();
    place.mounts("b", "plain", &[]);
    let both = place.ports();
    let a = place.at("a");
    place.must(&format!("umount.srd-nfs {} -l", a.display()));
    assert_eq!(place.noted("umount"), [format!("-i {} -l", a.display())]);
    place.eventually("the proxy ends", || place.ports().len() == 1);
    assert!(!place.ports().contains(&first[0]), "{both:?}");
    assert_eq!(place.must("ls -d /run/srd-nfs/*/ | wc -l").trim(), "1");
    // A mount that fails leaves no proxy.
    place.program("mount", "exit 32\n");
    let error = place.refuses("c", "plain", &[], 32);
    assert!(error.contains("is /export exported there?"), "{error}");
    place.eventually("its proxy has ended", || place.ports().len() == 1);
    // If the unmount fails, the proxy continues.
    place.program("umount", "exit 32\n");
    let output = place.sh(&format!("umount.srd-nfs {}", place.at("b").display()));
    assert_eq!(output.status.code(), Some(32));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(place.ports().len(), 1);
}

#[test]
fn a_remount_keeps_the_proxy() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    let error = place.refuses("a", "plain,remount,ro", &[], 32);
    assert!(error.contains("not mounted through srd nfs-proxy"), "{error}");
    place.mounts("a", "plain,suid,_netdev,x-systemd.automount,user", &[]);
    let (ports, pid) = (place.ports(), place.must("cat /run/srd-nfs/*/pid"));
    place.mounts("a", "plain,suid,remount,ro", &[]);
    place.mounts("a", "remount,rw", &["-n"]);
    assert_eq!((place.ports(), place.must("cat /run/srd-nfs/*/pid")), (ports.clone(), pid));
    let output = place.mount("a", "plain,remount,connections=2", &[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("unmount, and mount again"), "{said}");
    let (port, a) = (ports[0], place.at("a"));
    let mounts = place.noted("mount");
    let of = |before: &str, after: &str| {
        let given = format!("addr=127.0.0.1,proto=tcp,port={port},uhelper=srd-nfs");
        format!("{before}{given}{after} 127.0.0.1:/export {}", a.display())
    };
    let first = of("-i -t nfs4 -o ", ",nodev,suid,_netdev,x-systemd.automount,user,vers=4.1,hard");
    assert_eq!(mounts[0], first);
    assert_eq!(mounts[1], of("-i -t nfs4 -o remount,", ",nodev,suid,ro"));
    assert_eq!(mounts[2], of("-i -n -t nfs4 -o remount,", ",nosuid,nodev,rw"));
}

#[test]
fn options_of_mount_are_understood() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    place.mounts("a", "plain", &["-f"]);
    assert!(place.noted("mount").is_empty() && place.ports().is_empty(), "-f does nothing");
    place.mounts(
        "a",
        "plain,vers=4.2,soft,dev,context=\"system_u:c1,c2\"",
        &["-svnr", "-t", "srd-nfs"],
    );
    let mounts = place.noted("mount");
    let words = ",nosuid,ro,vers=4.2,soft,dev,context=\"system_u:c1,c2\",sloppy 127.0.0.1:/export";
    assert!(mounts[0].starts_with("-i -v -n -t nfs4 ") && mounts[0].contains(words), "{mounts:?}");
    for (options, what) in [
        ("", "-o ca=FILE"),
        ("plain,proxyport=20049", "a port from 1 to 1023"),
        ("plain,proxyport=x", "a port from 1 to 1023"),
        ("plain,port=1", "the proxy's"),
        ("plain,connections=x", "no number"),
        ("plain,servername=a b", "no name"),
        ("plain,context=\"a", "quotation mark"),
    ] {
        let error = place.refuses("b", options, &[], 1);
        assert!(error.contains(what), "{options}: {error}");
    }
    for more in [&["-x"][..], &["-N", "1"], &["word"]] {
        place.refuses("b", "plain", more, 1);
    }
    assert_eq!(place.noted("mount").len(), 1);
}

/// If the server does not run yet, a mount with `bg` waits for it in the background. Regression:
/// the mount gave up when the time of day was set meanwhile.
#[test]
fn regression_a_mount_waits_for_its_server_if_it_is_told_to() {
    if !ready() {
        return;
    }
    let place = NfsHost::new();
    // Each call of date(1) is 30 years after the one before.
    let date = "n=$(cat /run/test/date)\necho $((n + 1)) >/run/test/date\necho ${n}000000000\n";
    place.program("date", date);
    place.must("echo 1 >/run/test/date");
    let at = place.at("a");
    let mount = |options: &str| {
        let words = ["mount.srd-nfs", "127.0.0.1:3049:/x", at.to_str().unwrap(), "-o", options];
        place.within(&words).output().unwrap()
    };
    let output = mount("plain");
    assert_eq!(output.status.code(), Some(32));
    assert!(place.ports().is_empty());
    assert!(mount("plain,bg").status.success());
    assert!(place.noted("mount").is_empty());
    place.serve("127.0.0.1:3049");
    place.eventually("it is mounted", || place.noted("mount").len() == 1);
}

/// With systemd, the units of the package run the proxy and hold its socket.
#[test]
fn with_systemd_the_units_of_the_package_are_used() {
    if !ready() {
        return;
    }
    let place = NfsHost::with_systemd(SYSTEMCTL);
    place.mounts("a", "plain", &[]);
    place.mounts("b", "plain", &[]);
    let ports = place.ports();
    assert_eq!(ports.len(), 2);
    let said = place.noted("systemctl");
    for port in &ports {
        let unit = format!("srd-nfs-proxy@{port}");
        let at = |what: String| said.iter().position(|line| *line == what).expect("it is said");
        let socket = at(format!("start {unit}.socket"));
        assert!(socket < at(format!("start {unit}.service")), "{said:?}");
    }
    place.must(&format!("umount.srd-nfs {}", place.at("a").display()));
    place.eventually("the proxy ends", || place.ports().len() == 1);
    let said = place.noted("systemctl");
    for words in ["stop --no-block srd-nfs-proxy@", "kill --signal USR1 srd-nfs-proxy@"] {
        assert!(said.iter().any(|line| line.starts_with(words)), "{words}: {said:?}");
    }
}

/// The unchanged units of the package, run by a systemd of this machine in separate namespaces.
#[test]
fn the_units_of_the_package_hold_the_port_and_end_with_the_mount() {
    if !ready() {
        return;
    }
    let Some(place) = NfsHost::with_real_systemd() else { return };
    place.mounts("a", "plain", &[]);
    place.mounts("b", "plain", &[]);
    let ports = place.ports();
    assert_eq!(ports.len(), 2);
    let unit = format!("srd-nfs-proxy@{}", ports[0]);
    let pid = || {
        place.must(&format!("systemctl show -p MainPID --value {unit}.service")).trim().to_owned()
    };
    let first = pid();
    let status = place.must(&format!("cat /proc/{first}/status"));
    for line in ["Uid:\t64999\t64999\t64999\t64999", "CapPrm:\t0000000000000400", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let probe = format!("srd nfs-proxy --plain --probe 127.0.0.1:{}", ports[0]);
    // The proxy is killed, and then restarted as by an upgrade. Its socket stays open all the time.
    place.must(&format!("kill -9 {first}; {probe}"));
    let second = pid();
    assert_ne!(first, second);
    place.must("systemctl try-restart 'srd-nfs-proxy@*.service'");
    assert_ne!(pid(), second);
    place.must(&probe);
    assert_eq!(place.ports(), ports);
    place.must(&format!("umount.srd-nfs {}", place.at("a").display()));
    place.eventually("its port is free", || place.ports() == ports[1..]);
    let is_active = format!("systemctl is-active {unit}.service {unit}.socket");
    place.eventually("its units have ended", || {
        place.must(&format!("{is_active} || true")) == "inactive\ninactive\n"
    });
    // The script of the package that runs before the removal stops all proxies.
    let prerm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prerm");
    place.must(&format!("sh {} remove", prerm.display()));
    assert!(place.ports().is_empty());
}

/// Regression: proxies continued with the old program after an upgrade, and also after a removal of
/// the package.
#[test]
fn regression_the_package_restarts_proxies_and_stops_them_when_it_goes() {
    if !ready() {
        return;
    }
    let place = NfsHost::with_systemd(SYSTEMCTL);
    place.program("adduser", "echo \"$*\" >>/run/test/adduser\n");
    let script = |words: &str| {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        place.must(&format!("sh {}/{words}", packaging.display()));
        let said = place.noted("systemctl");
        place.must("rm -f /run/test/systemctl");
        said
    };
    let said = script("postinst configure 0.1.0");
    assert!(said.contains(&"try-restart srd-nfs-proxy@*.service".to_owned()), "{said:?}");
    assert!(script("prerm upgrade 0.1.0").is_empty());
    let said = script("prerm remove");
    let stops = "stop srd-nfs-proxy@*.socket srd-nfs-proxy@*.service srd-nfs-*.service";
    assert!(said.contains(&stops.to_owned()), "{said:?}");
    // This upgrade is from a version without a user for the proxies, so running proxies could not
    // read their keys.
    place.must(
        "for file in passwd group; do \
         grep -v ^srd-nfs: /etc/$file >/run/test/less; cat /run/test/less >/etc/$file; done",
    );
    place.program("install", "echo \"$*\" >>/run/test/install\n");
    let said = script("postinst configure 0.1.0");
    assert!(!said.iter().any(|line| line.starts_with("try-restart srd-nfs")), "{said:?}");
    assert_eq!(place.noted("install"), ["-d -m 0750 -g srd-nfs /etc/srd-nfs"]);
    assert!(place.noted("adduser").iter().any(|line| line.ends_with(" srd-nfs")));
}

/// Regression: an upgrade restarted a tunnel whose file the new program refuses, so the tunnel
/// ended.
#[test]
fn regression_a_tunnel_whose_file_is_refused_continues_after_an_upgrade() {
    if !ready() {
        return;
    }
    let place = NfsHost::with_systemd(
        "echo \"$*\" >>/run/test/systemctl\n\
         case $* in list-units*srd@*) echo 'srd@good.service loaded active running srd'\n\
         echo 'srd@taken.service loaded active running srd'\n\
         echo 'srd@bad.service loaded active running srd' ;; esac\n",
    );
    place.program("adduser", "");
    // The daemon of `taken` hands over to the new program, and that of `good` cannot.
    let refuses = "echo '#!/bin/sh' >/run/test/new/srd; \
                   echo 'case $* in *--check*/bad.toml|*--take-over*/good.toml) exit 1 ;; esac' \
                   >>/run/test/new/srd";
    place.must(&format!("mkdir /run/test/new; {refuses}; chmod +x /run/test/new/srd"));
    let postinst = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/postinst");
    let run = format!("PATH=/run/test/new:$PATH sh {} configure 0.1.0 2>&1", postinst.display());
    let printed = place.must(&run);
    assert!(printed.contains("srd@bad.service still runs the previous program"), "{printed}");
    assert!(!printed.contains("srd@good.service"), "{printed}");
    let said = place.noted("systemctl");
    assert!(said.contains(&"try-restart srd@good.service".to_owned()), "{said:?}");
    for name in ["bad", "taken"] {
        let restart = format!("try-restart srd@{name}.service");
        assert!(!said.contains(&restart), "{said:?}");
    }
}
