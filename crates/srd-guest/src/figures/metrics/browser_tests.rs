use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use srd_http::{Listener, Server};

use super::*;

/// Budget of the page's virtual time in milliseconds. This time passes as fast as answers arrive.
const TIME: &str = "--virtual-time-budget=30000";
/// Number of packets that a limit delays in each second.
const HELD: u64 = 812;

/// Returns a status in which counters of one instance grow with `second`, and all other counters
/// stay constant.
fn status(second: u64) -> Value {
    let interface = |held: u64, bytes: u64| {
        json!({
            "device": "ens5", "addresses": ["10.0.1.10/24"], "drops": { "GroupsIn": 3 },
            "counters": [["bw_out_allowance_exceeded", held], ["pps_allowance_exceeded", 7],
                ["tx_bytes", bytes], ["rx_bytes", bytes / 50], ["tx_packets", bytes / 1500]],
        })
    };
    let instance = |name: &str, held: u64, bytes: u64, credits: u64| {
        json!({
            "name": name, "instance_type": "c7i.large", "interfaces": [interface(held, bytes)],
            "tracked": 1, "untracked": 0, "credits_bits": [5_000_000_000_u64, credits],
            "bandwidth_bps": [125_000_000, 7_810_000], "packets_per_second": 10_000,
        })
    };
    // The rate changes, and at first no packet is delayed.
    let bytes = second * 900_000 + second * second % 7 * 100_000;
    let held = second.saturating_sub(8) * HELD;
    json!({
        "status": {
            "host": "alpha", "scale": 100, "internet": true, "version": "0", "drops": {},
            "uptime_s": second, "cpu_s": second as f64 / 4.0,
            "instances": [instance("busy", held, bytes, 0),
                instance("calm", 0, second * 1000, 5_000_000_000)],
            "hosts": [],
        },
        "logs": [],
        "flows": [{ "device": "ens5", "protocol": "tcp", "local": "10.0.1.10:443",
            "remote": "10.0.2.10:51000", "local_first": false, "connection": "established",
            "sent": "complete", "received": "pending" }],
    })
}

fn browse(url: &str, arguments: &[&str]) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--no-proxy-server"])
        .args([&format!("--user-data-dir={}", profile.path().display()), "--enable-logging=stderr"])
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let script: Vec<&str> = complaints.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(script.is_empty() && output.status.success(), "{script:?} {complaints}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn regression_the_page_says_first_which_limit_holds_packets_up_and_since_when() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let url = format!("http://{}/", listener.address().unwrap());
    let second = AtomicU64::new(0);
    let page = srd_http::page(PAGE, &[]);
    let answer = move |request: &Request| match request.path.as_str() {
        "/" => {
            second.store(0, Ordering::Relaxed);
            Response::ok("text/html; charset=utf-8", page.clone())
        }
        _ => {
            let second = second.fetch_add(1, Ordering::Relaxed);
            Response::ok("application/json", status(second).to_string())
        }
    };
    let _server = Server::start(listener, Box::new(answer)).unwrap();
    // Screenshots for inspection: SRD_SCREENSHOTS names their directory.
    if let Some(directory) = std::env::var_os("SRD_SCREENSHOTS") {
        for (scheme, name, size) in [
            ("0", "card-dark", "1200,1700"),
            ("1", "card", "1200,1700"),
            ("1", "card-phone", "500,1700"),
        ] {
            let file = std::path::Path::new(&directory).join(name).with_extension("png");
            let file = format!("--screenshot={}", file.display());
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            browse(&url, &[&file, &scheme, &format!("--window-size={size}"), TIME]);
        }
    }
    let Some(page) = browse(&url, &["--dump-dom", TIME]) else {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!ci, "in CI this test must run: chromium is missing");
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    let page = &page[page.find("<body>").unwrap()..page.find("<script>").unwrap()];
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{page}"));
    let said = at("One thing holds packets up or drops them now.");
    let which = at("<b>busy: bandwidth from the instance</b> 812 packets a second");
    assert!(said < which && which < at("id=\"tiles\""), "{page}");
    let item = &page[which..which + page[which..].find("</li>").unwrap()];
    assert!(item.contains("the credits are spent, the baseline is 7.81 Mb/s"), "{item}");
    assert!(item.contains("since ") && !item.contains("before this page"), "{item}");
    assert!(page.contains("<b>25 %</b><span>of one core, used by the card"), "{page}");
    let cost = &page[..at("</b><span>of processor time for each packet")];
    let cost = cost[cost.rfind("<b>").unwrap() + 3..].strip_suffix(" µs").unwrap();
    // A quarter of a second for 400 to 800 packets.
    assert!((300.0..650.0).contains(&cost.parse::<f64>().unwrap()), "{cost}");
    assert!(page.contains("class=\"wrong\""), "the chart marks the time");
    assert!(page.contains(">baseline: 7.81 Mb/s<"), "the chart has the limit");
    assert!(page.contains("<td>pass</td><td>not judged yet</td>") && !page.contains("complete"));
}
