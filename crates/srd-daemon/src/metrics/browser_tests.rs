use super::*;
use crate::config::Metrics;
use crate::fake_plane::FakePlane;
use std::process::{Command, Stdio};

/// Virtual time of the page in milliseconds (100 s). In virtual time a timer expires at once, so
/// the page fetches several snapshots.
const TIME: &str = "--virtual-time-budget=100000";

/// Runs a browser without a screen; `None` if no browser is installed.
fn browse(url: &str, arguments: &[&str]) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", profile.path().display());
    for browser in ["chromium", "chromium-browser", "google-chrome"] {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--no-proxy-server"])
            .args([&profile, "--enable-logging=stderr", "--window-size=1200,1500"])
            .args(arguments)
            .arg(url)
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else { continue };
        let complaints = String::from_utf8_lossy(&output.stderr);
        let script: Vec<&str> = complaints.lines().filter(|l| l.contains("CONSOLE")).collect();
        assert!(script.is_empty(), "the page complains: {script:?}");
        assert!(output.status.success(), "{browser}: {complaints}");
        return Some(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    None
}

#[test]
fn a_browser_shows_peers_paths_and_flows_without_complaint() {
    let plane = FakePlane::start();
    let listen = "127.0.0.1:0".parse().unwrap();
    let listener = bind(&Metrics { listen, allow_remote: false, host_names: Vec::new() }).unwrap();
    let url = format!("http://{}/", listener.address().unwrap());
    let _server = start(listener, plane.handle.clone(), None).unwrap();
    // For visual inspection: the variable SRD_SCREENSHOTS names a directory for screenshots.
    if let Some(directory) = std::env::var_os("SRD_SCREENSHOTS") {
        for (scheme, name) in [(0, "dark"), (1, "light")] {
            let file = std::path::Path::new(&directory).join(name).with_extension("png");
            let file = format!("--screenshot={}", file.display());
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            browse(&url, &[&file, &scheme, TIME]);
        }
    }
    let Some(page) = browse(&url, &["--dump-dom", TIME]) else {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!ci, "in CI this test must run: chromium is missing");
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    for text in ["srd0", "9.88 Gb/s", "waiting for the peer", "10.77.0.2:80", "malformed"] {
        assert!(page.contains(text), "`{text}` is not in\n{page}");
    }
    // Present problems are shown above everything else.
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{page}"));
    assert!(at("<b>peer b:</b> 1 of 16 paths lose packets") < at("id=\"tiles\""), "{page}");
    assert!(at("<b>controller 192.0.2.9:4600:</b>") < at("<b>peer b:</b>"), "{page}");
    // Every path has a bar in the colour of its state.
    assert_eq!(page.matches("class=\"path good\"").count(), 14);
    assert_eq!(page.matches("class=\"path skip\"").count(), 1);
    assert_eq!(page.matches("class=\"path assumed-bad\"").count(), 1);
    assert!(page.contains("share of packets in the last second"), "{page}");
}
