//! Link options of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs record this name. Its number has to change when old programs cannot use the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsrd.so.0");
    // Threads that are ending still run this code, so it has to stay in memory after `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
