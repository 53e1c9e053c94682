//! Metrics of `srd card up --metrics`, as Prometheus and a browser get them. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::machine::*;
use rustix::process::Signal;
use serde_json::Value;

const AT: &str = "127.0.0.1:9472";

/// Returns the head and the body of the HTTP response for a path.
fn get(machine: &Machine, path: &str, host: &str) -> (String, String) {
    let mut stream = within(&machine.namespace, || TcpStream::connect(AT).unwrap());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Returns the page of metrics after a hundred seconds of simulated time in a browser; `None` if
/// there is no browser.
fn page(machine: &Machine) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", machine.namespace))
        .args(["chromium", "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=100000"])
        .arg(format!("http://{AT}/"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && complaints.contains("failed to execute") {
        assert!(std::env::var_os("CI").is_none(), "chromium belongs to CI");
        println!("skipped: no chromium (apt-get install chromium)");
        return None;
    }
    let is_ours = |line: &&str| line.contains("CONSOLE") && line.contains(AT);
    let script: Vec<&str> = complaints.lines().filter(is_ours).collect();
    assert!(script.is_empty() && output.status.success(), "{script:?} {complaints}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Counters at the beginning of `srd card stats`, in the order of the ENA driver.
const ENA_COUNTERS: [&str; 11] = [
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded",
    "conntrack_allowance_available",
    "ena_srd_mode",
    "ena_srd_tx_pkts",
    "ena_srd_eligible_tx_pkts",
    "ena_srd_rx_pkts",
    "ena_srd_resource_utilization",
];

/// Checks that the counters of an instance have the form and the order of `ethtool -S`.
fn is_like_ethtool(machine: &Machine, instance: &str) {
    let output = machine.srd(&["card", "stats", instance]);
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("NIC statistics:"), "{said}");
    let counters: Vec<(&str, u64)> = lines
        .map(|line| {
            let (name, value) = line.strip_prefix("     ").unwrap().split_once(": ").unwrap();
            (name, value.parse().unwrap())
        })
        .collect();
    let names: Vec<&str> = counters.iter().map(|(name, _)| *name).collect();
    assert_eq!(names[..ENA_COUNTERS.len()], ENA_COUNTERS, "{said}");
    // The talk NET402 (AWS re:Invent 2024) shows this figure for a c7i.large.
    let (_, available) = counters[5];
    assert!((136_800..=136_812).contains(&available), "{said}");
}

/// Checks that an instance has the same counters in the forms of CloudWatch and OpenTelemetry.
fn is_exported(machine: &Machine, instance: &str) {
    let lines = |args: &[&str]| -> Vec<Value> {
        let output = machine.srd(&[&["card", "export"], args].concat());
        assert!(output.status.success(), "{output:#?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let received = machine.counter("web", "rx_packets");
    let is_of = |line: &&Value| line["name"] == instance;
    let of_cloudwatch = lines(&["cloudwatch", "--every", "1", "--count", "2"]);
    let of_instance: Vec<&Value> = of_cloudwatch.iter().filter(is_of).collect();
    assert_eq!((of_cloudwatch.len(), of_instance.len()), (4, 2), "{of_cloudwatch:#?}");
    for line in of_instance {
        assert_eq!(line["ethtool_rx_packets"], received);
        assert_eq!(line["ethtool_bw_in_allowance_exceeded"], 0);
        assert!(line["InstanceId"].as_str().unwrap().starts_with("i-"), "{line}");
    }
    let point = || {
        let [of_telemetry] = &lines(&["opentelemetry"])[..] else { panic!("not one line") };
        let metrics = of_telemetry["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array();
        let is_wanted = |metric: &&Value| metric["name"] == "srd_card_interface_rx_packets";
        let metric = metrics.unwrap().iter().find(is_wanted).unwrap();
        let points = metric["sum"]["dataPoints"].as_array().unwrap();
        let is_ours = |point: &&Value| point["attributes"][0]["value"]["stringValue"] == instance;
        points.iter().find(is_ours).unwrap().clone()
    };
    let [first, second] = [point(), point()];
    assert_eq!(first["asInt"], received.to_string());
    assert!(first["startTimeUnixNano"].is_string(), "{first}");
    assert_eq!(
        first["startTimeUnixNano"], second["startTimeUnixNano"],
        "the card has not restarted"
    );
    let refused = machine.srd(&["card", "export", "cloudwatch", "--namespace", "AWS/EC2"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
}

#[test]
fn figures_are_those_of_the_commands_and_the_page_shows_them() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("m");
    let file = machine.example("vpc.toml", |text| text);
    let refused = machine.srd(&["card", "up", &file, "--metrics", "0.0.0.0:9472"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--metrics-remote"));

    let mut card = machine.up(&[&file, "--metrics", AT]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let https = listen(&web, 443);
    let mut client = connect(&app, WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");
    let name_of_web = format!("{}web", machine.prefix);
    wait_until("a drop", || machine.drops(&name_of_web, "security groups in") > 0);

    // For a while, the card may repeat an answer from before the last packets.
    settled(|| ["web", "app"].map(|instance| machine.counter(instance, "rx_packets")));
    let (head, text) = get(&machine, "/metrics", "localhost");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
    let value = |name: &str, instance: &str, more: &str| {
        let guest = format!("guest=\"{}{instance}\"", machine.prefix);
        let mut found = text.lines().filter(|line| {
            line.starts_with(&format!("{name}{{")) && line.contains(&guest) && line.contains(more)
        });
        let line = found.next().unwrap_or_else(|| panic!("{name} {guest}: {text}"));
        assert!(found.next().is_none(), "{text}");
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    for instance in ["web", "app"] {
        let received = value("srd_card_interface_rx_packets_total", instance, "ens5");
        assert_eq!(received, machine.counter(instance, "rx_packets"));
        assert!(received > 1);
        let left = value("node_ethtool_conntrack_allowance_available", instance, "ens5");
        assert_eq!(left, machine.counter(instance, "conntrack_allowance_available"));
    }
    assert!(value("srd_card_drops_total", "web", "security groups in") > 0);

    is_like_ethtool(&machine, &name_of_web);
    is_exported(&machine, &name_of_web);

    let name = format!("{}app", machine.prefix);
    let (_, body) = get(&machine, &format!("/status.json?instance={name}"), "127.0.0.1:9472");
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["status"]["instances"].as_array().unwrap().len(), 2);
    let flows = status["flows"].as_array().unwrap();
    let is_ours = |flow: &Value| flow["remote"] == "10.0.1.10:443" && flow["protocol"] == "tcp";
    assert!(flows.iter().any(is_ours), "{flows:#?}");
    let (_, body) = get(&machine, "/status.json?instance=none", "[::1]");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["flows"], Value::Array(Vec::new()));

    assert!(get(&machine, "/", "evil.example").0.starts_with("HTTP/1.1 421"));
    assert!(get(&machine, "/etc/passwd", "localhost").0.starts_with("HTTP/1.1 404"));
    if let Some(page) = page(&machine) {
        for text in [&name, "c7i.large", "10.0.1.10:443", "flow_allowance_exceeded", "2 instances"]
        {
            assert!(page.contains(text), "`{text}` is not in\n{page}");
        }
    }
    assert_eq!(card.end(Signal::TERM), 0);
}
