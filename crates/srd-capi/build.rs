//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs ask for this name; the number changes when old programs cannot use the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsrd.so.0");
    // Threads that are on their way out must find this code in memory even after `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
