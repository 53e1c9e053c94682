//! Whether a test can run on this machine. In CI every test must run: a test that prints `skipped:
//! ` fails the run (`.ci/test`).

/// Whether this machine meets all requirements of a fabric, and lacks nothing in `missing_too`.
/// Prints the missing requirements.
pub(crate) fn ready(missing_too: impl IntoIterator<Item = String>) -> bool {
    let missing = srd_lab::requirements().into_iter().filter(|m| m.required);
    let missing = missing.map(|m| m.to_string()).chain(missing_too);
    let missing = missing.collect::<Vec<_>>().join("; ");
    if missing.is_empty() {
        return true;
    }
    println!("skipped: {missing}");
    false
}

/// Returns the requirement that is missing for tests with a TUN device, such as those with daemons.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn missing_tun() -> Option<String> {
    let there = std::path::Path::new("/dev/net/tun").exists();
    (!there).then(|| "there is no /dev/net/tun".to_owned())
}
