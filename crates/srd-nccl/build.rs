//! Link options of the plugin.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-srd.so");
    // NCCL unloads a plugin with the last communicator. Threads that are ending still run this
    // code, so it has to stay in memory.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
