use super::*;
use crate::config::Metrics;
use crate::fake_plane::FakePlane;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

struct Daemon {
    address: SocketAddr,
    plane: FakePlane,
    _server: srd_http::Server,
}

fn daemon() -> Daemon {
    daemon_with(None)
}

fn daemon_with(instances: Option<InstanceFigures>) -> Daemon {
    let plane = FakePlane::start();
    let listen = "127.0.0.1:0".parse().unwrap();
    let listener = bind(&Metrics { listen, allow_remote: false, host_names: Vec::new() }).unwrap();
    let address = listener.address().unwrap();
    let server = start(listener, plane.handle.clone(), instances).unwrap();
    Daemon { address, plane, _server: server }
}

impl Daemon {
    /// Sends raw bytes to the server. Returns its answer as text.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        // The server may close the connection before it has read all bytes.
        let _ = stream.read_to_string(&mut text);
        text
    }

    fn get(&self, path: &str, host: &str) -> (String, String) {
        let text = self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.to_owned(), body.to_owned())
    }
}

#[test]
fn page_status_and_metrics_are_served() {
    let daemon = daemon();
    let (head, body) = daemon.get("/", "localhost");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/html"), "{head}");
    assert!(body.starts_with("<!doctype html>") && body.trim_end().ends_with("</html>"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    let (head, body) = daemon.get("/status.json?peer=b", "127.0.0.1:9471");
    assert!(head.contains("application/json"), "{head}");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["peers"][0]["path_reports"].as_array().unwrap().len(), 16);
    assert_eq!(status["peers"][1]["path_reports"].as_array().unwrap().len(), 0);
    assert_eq!(status["flows"][0]["destination"], "10.77.0.2:80");
    let (head, body) = daemon.get("/metrics", "[::1]");
    assert!(head.contains("openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("node_ethtool_ena_srd_mode{device=\"srd0\"} 3"), "{body}");
    assert!(body.contains("srd_path_sent_pkts_total"), "{body}");
    assert!(daemon.get("/etc/passwd", "localhost").0.contains("404"));
}

#[test]
fn a_node_with_instances_has_one_exposition_and_one_page_with_tabs() {
    let text = "# HELP node_ethtool_ena_srd_mode Of instances.\n\
                # TYPE node_ethtool_ena_srd_mode unknown\n\
                node_ethtool_ena_srd_mode{guest=\"web\"} 1\n# EOF\n";
    let figures = InstanceFigures {
        answer: Box::new(|path, _| srd_http::Response::ok("text/plain", format!("at {path}"))),
        metrics: Box::new(|| Ok(text.to_owned())),
        is_alone: false,
    };
    let daemon = daemon_with(Some(figures));
    let (_, page) = daemon.get("/", "localhost");
    assert!(page.contains("<a href=\"instances/\">Instances</a>"), "{page}");
    assert_eq!(daemon.get("/instances/", "localhost").1, "at /");
    assert_eq!(daemon.get("/instances/status.json", "localhost").1, "at /status.json");
    assert!(daemon.get("/instancesx", "localhost").0.contains("404"));
    let (_, metrics) = daemon.get("/metrics", "localhost");
    for sample in ["{device=\"srd0\"} 3", "{guest=\"web\"} 1"] {
        assert!(metrics.contains(&format!("node_ethtool_ena_srd_mode{sample}")), "{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE node_ethtool_ena_srd_mode ").count(), 1);
    assert_eq!(metrics.matches("# EOF").count(), 1);
    assert!(!daemon_with(None).get("/", "localhost").1.contains("Instances"));
}

/// `srd card up` had its page and its figures at these paths before it was a node.
#[test]
fn a_node_with_instances_alone_shows_them_first() {
    let figures = InstanceFigures {
        answer: Box::new(|path, _| srd_http::Response::ok("text/plain", format!("at {path}"))),
        metrics: Box::new(|| Err(String::from("not yet"))),
        is_alone: true,
    };
    let daemon = daemon_with(Some(figures));
    for (path, answer) in [
        ("/", "at /"),
        ("/status.json", "at /status.json"),
        ("/instances/", "at /"),
        ("/instances/status.json", "at /status.json"),
    ] {
        assert_eq!(daemon.get(path, "localhost").1, answer, "{path}");
    }
    assert!(daemon.get("/metrics", "localhost").1.contains("node_ethtool_ena_srd_mode"));
    assert!(daemon.get("/etc/passwd", "localhost").0.contains("404"));
}

#[test]
fn regression_a_part_of_a_node_that_gives_no_figures_hides_no_other_part() {
    let of_instances = |metrics: Result<String, String>| InstanceFigures {
        answer: Box::new(|_, _| srd_http::Response::ok("text/plain", String::new())),
        metrics: Box::new(move || metrics.clone()),
        is_alone: false,
    };
    let text = "# HELP a Of instances.\n# TYPE a gauge\na{guest=\"web\"} 1\n# EOF\n";
    let silent = || Err("the service does not answer".to_owned());
    let daemon = daemon_with(Some(of_instances(silent())));
    let (head, body) = daemon.get("/metrics", "localhost");
    assert!(head.contains("200 OK"), "{head}");
    for sample in ["srd_peer_up{", "{part=\"interface\"} 1", "{part=\"instances\"} 0"] {
        assert!(body.contains(sample), "{sample}: {body}");
    }
    // The daemon's control thread has ended, and its server of metrics has not.
    let mut daemon = daemon_with(Some(of_instances(Ok(text.to_owned()))));
    daemon.plane = FakePlane::start();
    let (head, body) = daemon.get("/metrics", "localhost");
    assert!(head.contains("200 OK"), "{head}");
    for sample in ["a{guest=\"web\"} 1", "{part=\"interface\"} 0", "{part=\"instances\"} 1"] {
        assert!(body.contains(sample), "{sample}: {body}");
    }
    let mut daemon = daemon_with(Some(of_instances(silent())));
    daemon.plane = FakePlane::start();
    assert!(daemon.get("/metrics", "localhost").0.contains("503"));
}

#[test]
fn the_page_takes_nothing_from_elsewhere() {
    let (head, body) = daemon().get("/", "localhost");
    for part in ["src=", "href=", "url(", "@import", "//"] {
        let outside = body.lines().filter(|line| line.contains(part));
        let outside: Vec<&str> = outside.filter(|line| !is_harmless(line)).collect();
        assert!(outside.is_empty(), "{part}: {outside:?}");
    }
    assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{head}");
}

/// Whether a line of the page loads nothing: it is a comment, or contains only the name of an XML
/// namespace.
fn is_harmless(line: &str) -> bool {
    line.trim_start().starts_with("//") || line.contains("http://www.w3.org/2000/svg")
}

#[test]
fn a_name_that_was_bent_to_us_gets_nothing() {
    let daemon = daemon();
    for host in ["evil.example", "evil.example:9471", "localhost.evil.example", ""] {
        for path in ["/", "/status.json", "/metrics"] {
            let (head, body) = daemon.get(path, host);
            assert!(head.starts_with("HTTP/1.1 421"), "{host} {path}: {head}");
            assert!(!body.contains("srd0"), "{body}");
        }
    }
}

#[test]
fn what_is_no_request_of_ours_is_refused() {
    let daemon = daemon();
    let says = |request: &str, status: &str| {
        let answer = daemon.raw(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:.40}: {answer}");
    };
    says("hello\r\n\r\n", "400");
    says("GET / HTTP/1.1\r\n\r\n", "400");
    says("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405");
    let long = "x".repeat(srd_http::HEAD_BYTES_MAX);
    says(&format!("GET / HTTP/1.1\r\nX: {long}"), "431");
    let many = "X: y\r\n".repeat(srd_http::HEADERS_MAX + 1);
    says(&format!("GET / HTTP/1.1\r\n{many}\r\n"), "431");
    let head = daemon.raw("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn connections_are_bounded_and_stalled_ones_are_shown_out() {
    let daemon = daemon();
    let stalled: Vec<TcpStream> = (0..srd_http::CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(daemon.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    // The server closes a connection without a complete request, which frees its slot.
    assert!(daemon.get("/metrics", "localhost").0.starts_with("HTTP/1.1 200"));
    let mut text = String::new();
    (&stalled[1]).read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
}
