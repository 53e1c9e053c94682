//! Sets link options of the provider.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The core unloads providers when a process ends. The code must stay in memory afterwards,
    // because thread-local destructors and ending threads still run it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
