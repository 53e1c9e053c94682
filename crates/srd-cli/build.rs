//! Sets link options of the program for tests.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // If the program is position-independent, each start of it adjusts 288,000 addresses. That is
    // half of the processor time of a command, and tests start thousands of commands. A program for
    // users remains position-independent, so that its addresses are random.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        println!("cargo:rustc-link-arg-tests=-no-pie");
    }
}
