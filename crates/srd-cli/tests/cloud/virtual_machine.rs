//! A virtual machine behind the card: a stock Linux kernel with its own virtio-net driver. The
//! machine gets its address by DHCP, and security groups apply to it. Its connections survive the
//! end of the card's process. Needs root, QEMU and a kernel.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;
use crate::support::qemu::{boot, kernel};
use rustix::process::Signal;

/// Maximum time until an emulated kernel has booted.
const BOOT: Duration = Duration::from_secs(600);

const INIT: &str = r#"#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
/lib/load
until [ -e /sys/class/net/eth0 ]; do $B usleep 50000; done
$B ip link set lo up
$B ip link set eth0 up
$B udhcpc -i eth0 -n -q -t 100 -T 1 -s /dhcp >/dev/null 2>&1
echo "address $($B ip -o -4 addr show eth0 | $B awk '{print $4}')"
$B ping -c 3 -i 0.1 -W 60 10.0.2.10 | $B grep transmitted
echo "page $($B wget -q -O - http://10.0.2.10:443/)"
echo "closed $($B nc -w 1 10.0.2.10 80 </dev/null 2>&1)"
$B httpd -p 443 -h /www
$B httpd -p 80 -h /www
echo "ready"
while :; do $B sleep 1000; done
"#;
const DHCP: &str = r#"#!/bin/busybox sh
[ "$1" = bound ] || exit 0
/bin/busybox ip addr add "$ip/$mask" dev eth0
/bin/busybox ip route add default via "$router"
echo "lease of $ip by $serverid, route $router, names $dns" >/dev/console
"#;

/// Waits until the guest has printed a line that begins with `begin`. Returns the rest of the line.
fn said(machine: &Machine, begin: &str) -> String {
    let began = Instant::now();
    loop {
        let log = fs::read(machine.path("vm.log")).unwrap();
        let log = String::from_utf8_lossy(&log);
        // The last line of the log may be incomplete, so only whole lines are searched.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(begin)) {
            return rest.trim().to_owned();
        }
        assert!(began.elapsed() < BOOT, "the guest did not say `{begin}`:\n{log}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Answers each HTTP request with a page.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\napp\n");
    }
}

/// Sends the end of an HTTP request, and returns the answer.
fn page(mut stream: TcpStream, end: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(end.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Connects to the guest as soon as it is reachable again.
fn connect_again(namespace: &str) -> TcpStream {
    let began = Instant::now();
    loop {
        match connect(namespace, WEB, 443) {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[test]
fn a_stock_kernel_is_an_instance() {
    if !ready_with_nsenter() {
        return;
    }
    let Some(kernel) = kernel() else { return };
    let machine = Machine::new("vma");
    let file = machine.example("vpc.toml", |text| {
        text.replace(
            "[\"tcp 443 from group web\"]",
            "[\"tcp 443 from group web\", \"icmp from group web\"]",
        )
    });
    let path = machine.path("web.sock");
    let place = format!("{}web={}", machine.prefix, path.display());
    let words = [file.as_str(), "--vhost-user", &place];
    let mut card = machine.up(&words);
    let app = machine.instance("app");
    let (allowed, closed) = (listen(&app, 443), listen(&app, 80));
    closed.set_nonblocking(true).unwrap();
    thread::spawn(move || serve(&allowed));

    let name = format!("{}web", machine.prefix);
    let status = machine.json(&["card", "status", &name]);
    let mac = status["instances"][0]["interfaces"][0]["mac"].as_str().unwrap().to_owned();
    let files = [("init", INIT), ("dhcp", DHCP), ("www/index.html", "guest\n")];
    let _guest = boot(&machine, &kernel, ("vm", &path, &mac), &files);
    assert_eq!(said(&machine, "address"), "10.0.1.10/24");
    let pings = said(&machine, "3 packets transmitted, ");
    assert!(pings.starts_with("3 packets received"), "{pings}");
    assert_eq!(said(&machine, "page"), "app");
    assert!(!said(&machine, "closed").contains("refused"), "silence refuses");
    assert!(closed.accept().is_err(), "nothing came through");
    said(&machine, "ready");

    // A connection in the opposite direction. The guest also listens at port 80, which no security
    // group allows.
    let request = "GET / HTTP/1.0\r\n";
    let mut stream = connect(&app, WEB, 443).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let error = connect_in_vain(&app, WEB, 80).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);

    // Another process takes over the card, and serves the rest of the request.
    let mut next = machine.take_over(&mut card, &words);
    assert!(card.0.wait().unwrap().success());
    let answer = page(stream, "\r\n");
    assert!(answer.ends_with("guest\n"), "{answer}");

    // The card ends, starts again, and connects to the guest again.
    assert_eq!(next.end(Signal::TERM), 0);
    let _card = machine.up(&words);
    let answer = page(connect_again(&machine.instance("app")), &format!("{request}\r\n"));
    assert!(answer.ends_with("guest\n"), "{answer}");
}
