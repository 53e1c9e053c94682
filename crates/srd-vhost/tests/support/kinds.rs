//! Descriptors of every kind except events and memory.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::fuse::Stopped;
use rustix::event::epoll;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};

/// Name of the kind of [`stopped`].
pub(crate) const STOPPED: &str = "a file whose file system has stopped";

/// A kind of descriptor.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    descriptor: Open,
}

enum Open {
    Plain(OwnedFd),
    Stopped(Stopped),
}

impl AsFd for Kind {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Open::Plain(descriptor) => descriptor.as_fd(),
            Open::Stopped(of) => of.file.as_fd(),
        }
    }
}

/// Returns one descriptor of each kind that this machine has.
pub(crate) fn all(directory: &Path) -> Vec<Kind> {
    let open =
        |path: &Path| OwnedFd::from(File::options().read(true).write(true).open(path).unwrap());
    let file = directory.join("file");
    std::fs::write(&file, [0; 1 << 16]).unwrap();
    let fifo = directory.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let at_place = rustix::fs::open(&file, place, Mode::empty()).unwrap();
    let plain = [
        ("a pipe", pipe),
        ("a FIFO", open(&fifo)),
        ("a terminal", open(Path::new("/dev/ptmx"))),
        ("a Unix socket", socket.into()),
        ("a TCP socket", tcp.into()),
        ("an ordinary file", open(&file)),
        ("a place in a file system", at_place),
        ("a directory", File::open(directory).unwrap().into()),
        ("/dev/zero", open(Path::new("/dev/zero"))),
        ("an epoll descriptor", epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()),
        ("a timer", timer()),
    ];
    // Since Linux 6.7 the kernel refuses to pass rings of io_uring to another process.
    let plain = plain.into_iter().chain(uring().map(|uring| ("a ring of io_uring", uring)));
    let mut all: Vec<Kind> = plain
        .map(|(name, descriptor)| Kind { name, descriptor: Open::Plain(descriptor) })
        .collect();
    all.extend(stopped(directory));
    all
}

/// Returns a file of a file system that does not answer, if this machine can have one.
pub(crate) fn stopped(directory: &Path) -> Option<Kind> {
    let of = Stopped::mount(&directory.join("fuse"))?;
    Some(Kind { name: STOPPED, descriptor: Open::Stopped(of) })
}

#[allow(unsafe_code)]
fn timer() -> OwnedFd {
    // SAFETY: the calls take and return integers. The descriptor is new, and no other value owns
    // it.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Returns a ring of io_uring, if this machine supports it and permits passing it on.
#[allow(unsafe_code)]
fn uring() -> Option<OwnedFd> {
    let mut parameters = [0_u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes of parameters. The descriptor is new.
    let ring = unsafe {
        let fd = libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr());
        (fd >= 0).then(|| OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()))?
    };
    fcntl_setfd(&ring, FdFlags::CLOEXEC).unwrap();
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let rights = [ring.as_fd()];
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&rights)));
    let bytes = [std::io::IoSlice::new(b"x")];
    let sent = rustix::net::sendmsg(&a, &bytes, &mut control, rustix::net::SendFlags::NOSIGNAL);
    sent.is_ok().then_some(ring)
}
