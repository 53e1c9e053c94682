//! Waits until a veth interface passes packets. The kernel gives a new interface its carrier and
//! its queue from a work queue that may run a second later; until then, the interface discards each
//! packet without an error. The step of the work queue that gives the interface its queue also sets
//! the operational state.

use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time until an interface whose two ends are set up is operational.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns when the interface in this namespace is operational. Both ends of it must be set up.
pub(crate) fn wait(namespace: &str, interface: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let arguments = ["-n", namespace, "-br", "link", "show", "dev", interface];
        let output = Command::new("ip").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.split_whitespace().nth(1) == Some("UP") {
            return;
        }
        assert!(Instant::now() < until, "{interface} in {namespace} stays down: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
