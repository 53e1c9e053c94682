//! Link options of the provider.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The core unloads providers when a process ends. Thread-local destructors and threads that
    // are on their way out must find this code in memory even then.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
