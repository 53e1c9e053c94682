//! An unchanged Linux kernel as a guest in QEMU, without KVM, whose virtio-net driver uses
//! vhost-user. Its only file system is an archive that this module creates: BusyBox, the kernel's
//! modules, and a script.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::machine::{Machine, Running};

/// Modules of the kernel, in the order in which they are loaded: each module depends on earlier
/// modules.
const MODULES: [&str; 8] = [
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci",
    "net/failover",
    "net/net_failover",
    "net/virtio_net",
];
const BUSYBOX: &str = "/bin/busybox";
const MEMORY: &str = "192M";

/// A kernel image, and the directory of its modules.
pub(crate) struct Kernel {
    image: PathBuf,
    drivers: PathBuf,
}

/// Returns the kernel. If a program or file that a guest needs is missing, prints which one, and
/// returns `None`.
pub(crate) fn kernel() -> Option<Kernel> {
    let found = find();
    if let Err(what) = &found {
        assert!(std::env::var_os("CI").is_none(), "belongs to CI: {what}");
        println!("skipped: {what}");
    }
    found.ok()
}

fn find() -> Result<Kernel, String> {
    let qemu = Command::new("sh").args(["-c", "command -v qemu-system-x86_64"]).output();
    if !qemu.is_ok_and(|output| output.status.success()) {
        return Err("no qemu-system-x86_64 (apt-get install qemu-system-x86)".into());
    }
    if !fs::read(BUSYBOX).is_ok_and(|bytes| is_static(&bytes)) {
        return Err("no static BusyBox (apt-get install busybox-static)".into());
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../kernel");
    let only = |place: PathBuf, of: &str| {
        let mut entries = fs::read_dir(place).ok()?.filter_map(Result::ok);
        entries.find(|entry| entry.file_name().to_string_lossy().starts_with(of))
    };
    let image = only(root.join("boot"), "vmlinuz");
    let modules = only(root.join("lib/modules"), "");
    let (Some(image), Some(modules)) = (image, modules) else {
        return Err(format!(
            "no kernel for a guest (apt-get download a linux-image-...-cloud-amd64, and dpkg -x it \
             to {})",
            root.display()
        ));
    };
    Ok(Kernel { image: image.path(), drivers: modules.path().join("kernel") })
}

/// Whether an ELF program is linked statically: no segment names a dynamic loader.
fn is_static(elf: &[u8]) -> bool {
    const LOADER: u32 = 3;
    let number = |at: usize| {
        let bytes = elf.get(at..at + 8).map(|bytes| bytes.try_into().unwrap());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let first = usize::try_from(number(32)).unwrap();
    let (bytes, count) = (number(54) & 0xffff, number(56) & 0xffff);
    let mut parts = (0..count).map(|n| first + usize::try_from(n * bytes).unwrap());
    elf.starts_with(b"\x7fELF") && parts.all(|at| number(at) & 0xffff_ffff != u64::from(LOADER))
}

/// Starts a guest with these files in its file system. The guest's console is written to
/// `NAME.log`.
pub(crate) fn boot(
    machine: &Machine,
    kernel: &Kernel,
    (name, socket, mac): (&str, &Path, &str),
    files: &[(&str, &str)],
) -> Running {
    let archive = machine.path(&format!("{name}.cpio"));
    fs::write(&archive, disk(kernel, files)).unwrap();
    let log = File::create(machine.path(&format!("{name}.log"))).unwrap();
    let memory = format!("memory-backend-memfd,id=m,size={MEMORY},share=on");
    let socket = format!("socket,id=c,path={},reconnect=1", socket.display());
    let device = format!("virtio-net-pci,netdev=n,mac={mac},vectors=0");
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-machine", "q35,accel=tcg,memory-backend=m", "-cpu", "qemu64", "-m", MEMORY])
        .args(["-object", &memory, "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&archive)
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr"])
        .args(["-chardev", &socket, "-netdev", "vhost-user,id=n,chardev=c", "-device", &device]);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().unwrap())
}

/// Returns the guest's file system as a cpio archive, which a kernel unpacks at boot.
fn disk(kernel: &Kernel, files: &[(&str, &str)]) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    let mut archive = Archive::default();
    for name in ["bin", "dev", "lib", "proc", "sys", "www"] {
        archive.add(name, DIRECTORY, &[]);
    }
    archive.add("bin/busybox", PROGRAM, &fs::read(BUSYBOX).unwrap());
    let mut load = String::from("#!/bin/busybox sh\n");
    for module in MODULES {
        let name = module.split('/').next_back().unwrap();
        let bytes = fs::read(kernel.drivers.join("drivers").join(format!("{module}.ko")));
        let bytes = bytes
            .or_else(|_| fs::read(kernel.drivers.join(format!("net/core/{name}.ko"))))
            .unwrap_or_else(|error| panic!("{module}: {error}"));
        archive.add(&format!("lib/{name}.ko"), PROGRAM, &bytes);
        load += &format!("/bin/busybox insmod /lib/{name}.ko || echo no {name}\n");
    }
    archive.add("lib/load", PROGRAM, load.as_bytes());
    for (name, text) in files {
        archive.add(name, PROGRAM, text.as_bytes());
    }
    archive.add("TRAILER!!!", 0, &[]);
    archive.bytes
}

/// An archive in the format of `cpio -H newc`.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let length = |n: usize| u32::try_from(n).unwrap();
        // The fields are: number, mode, owner, group, links, time, length, four device numbers,
        // length of the name, checksum.
        let fields = [self.files, mode, 0, 0, 1, 0, length(content.len())];
        let fields = fields.into_iter().chain([0; 4]).chain([length(name.len()) + 1, 0]);
        self.bytes.extend(b"070701");
        fields.for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
