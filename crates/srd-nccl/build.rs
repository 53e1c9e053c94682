//! Link options of the plugin.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-srd.so");
    // NCCL unloads plugins with its last communicator. Threads that are on their way out must find
    // this code in memory even then.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
