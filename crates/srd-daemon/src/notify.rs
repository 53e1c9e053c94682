//! Notifications to systemd (sd_notify): datagrams of `KEY=value` lines to the socket that
//! `NOTIFY_SOCKET` names.
//!
//! Without `NOTIFY_SOCKET`, for example if the daemon was started by hand, every call does nothing.

use std::env;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};
use rustix::pipe::PipeFlags;

/// Longest time that a process waits until systemd has read its reports.
const BARRIER_WAIT_MAX: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Socket to systemd; it does nothing if systemd has not started this process or expects no
/// notifications.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
}

impl Notify {
    /// Opens the socket that `NOTIFY_SOCKET` names. Call it before privileges or namespaces change.
    ///
    /// # Errors
    /// If `NOTIFY_SOCKET` contains a name that no socket can have.
    pub fn from_environment() -> io::Result<Self> {
        Self::to(env::var_os("NOTIFY_SOCKET"))
    }

    /// Whether systemd, which has started this process, expects notifications.
    pub fn is_expected() -> bool {
        env::var_os("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty())
    }

    fn to(name: Option<OsString>) -> io::Result<Self> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Self { to: None });
        };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // If systemd does not read, a full socket must not block this process.
        socket.set_nonblocking(true)?;
        Ok(Self { to: Some((socket, address)) })
    }

    /// Reports that the service is ready.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the configuration is being read again; [`Notify::ready`] ends this state.
    pub fn reloading(&self) {
        let now_us = srd_net::Clock::new().now().as_nanos() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// Reports that the service is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports that the process with this number is the main process of the service from now on.
    /// Waits until systemd has read the report, for at most five seconds: systemd finds the
    /// service of a report by its sender, so the sender must not end before.
    pub fn main_process(&self, process: u32) {
        self.send(&format!("MAINPID={process}"));
        if let Err(error) = self.barrier() {
            tracing::warn!("systemd may take the end of this process for its own: {error}");
        }
    }

    /// Waits until systemd has read all reports: it closes the pipe that it receives.
    fn barrier(&self) -> io::Result<()> {
        let Some((socket, address)) = &self.to else { return Ok(()) };
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let fds = [writer.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let to = match (address.as_pathname(), address.as_abstract_name()) {
            (Some(path), _) => SocketAddrUnix::new(path)?,
            (None, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
            (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let text = [IoSlice::new(b"BARRIER=1")];
        sendmsg_addr(socket, &to, &text, &mut control, SendFlags::NOSIGNAL)?;
        drop(writer);
        let mut waits = [PollFd::new(&reader, PollFlags::IN)];
        match poll(&mut waits, Some(&BARRIER_WAIT_MAX)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            waited => waited.map(drop).map_err(io::Error::from),
        }
    }

    /// Sets the status text of `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.to else { return };
        if let Err(e) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!("systemd was not told: {e}");
        }
    }
}

/// Replaces line breaks by spaces, because each line is a variable of its own.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn tell_all(notify: &Notify, socket: &UnixDatagram) {
        notify.ready("up\nSTOPPING=1");
        assert_eq!(received(socket), "READY=1\nSTATUS=up STOPPING=1");
        notify.reloading();
        let text = received(socket);
        let (head, time) = text.rsplit_once('=').unwrap();
        assert_eq!(head, "RELOADING=1\nMONOTONIC_USEC");
        assert!(time.parse::<u64>().unwrap() > 0);
        notify.status("2 peers");
        assert_eq!(received(socket), "STATUS=2 peers");
        notify.stopping();
        assert_eq!(received(socket), "STOPPING=1");
    }

    #[test]
    fn systemd_hears_through_a_path_and_through_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        tell_all(&Notify::to(Some(path.into_os_string())).unwrap(), &socket);
        let name = format!("srd-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        tell_all(&Notify::to(Some(format!("@{name}").into())).unwrap(), &socket);
    }

    #[test]
    fn a_process_that_hands_over_waits_until_systemd_has_read_who_continues() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(Some(path.into_os_string())).unwrap();
        let hands_over = std::thread::spawn(move || notify.main_process(77));
        assert_eq!(received(&socket), "MAINPID=77");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!hands_over.is_finished(), "the barrier was not read yet");
        // The descriptor that comes with the message has no reader here, and is closed.
        assert_eq!(received(&socket), "BARRIER=1");
        hands_over.join().unwrap();
        Notify::to(None).unwrap().main_process(77);
    }

    #[test]
    fn without_systemd_nothing_happens_and_a_silent_one_holds_nobody_up() {
        for name in [None, Some(OsString::new())] {
            Notify::to(name).unwrap().ready("up");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let unread = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(Some(path.into_os_string())).unwrap();
        for _ in 0..10_000 {
            notify.status("x");
        }
        drop(unread);
        notify.stopping();
    }
}
