//! Link options of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs link to this name; the number changes when old programs cannot use the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsrd.so.0");
    // Threads that are on their way out must find this code in memory even after `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
