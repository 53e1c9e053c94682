//! All `unsafe` code of this crate: signal handlers, code between fork and exec, `SCHED_FIFO`, host
//! names, and TUN devices.
#![allow(unsafe_code)]

pub(crate) mod tun;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that end a process and can be caught.
const SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Pipe from the signal handler to the listener.
pub(crate) struct SignalPipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// The handlers that were in place before ours.
pub(crate) struct SavedHandlers(Vec<(libc::c_int, libc::sigaction)>);

static PIPE: OnceLock<SignalPipe> = OnceLock::new();
static PIPE_WRITE_FD: AtomicI32 = AtomicI32::new(-1);

impl SignalPipe {
    /// Waits for the next signal and returns it, with whether the terminal sent it; `None` if the
    /// pipe is broken.
    pub(crate) fn read(&self) -> Option<(i32, bool)> {
        let mut record = [0u8; 2];
        loop {
            match rustix::io::read(&self.read, &mut record) {
                Ok(2) => return Some((i32::from(record[0]), record[1] != 0)),
                Err(rustix::io::Errno::INTR) => {}
                _ => return None,
            }
        }
    }
}

/// Returns the process's only signal pipe.
pub(crate) fn signal_pipe() -> io::Result<&'static SignalPipe> {
    if let Some(pipe) = PIPE.get() {
        return Ok(pipe);
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // A handler must never wait for a full pipe.
    rustix::io::ioctl_fionbio(&write, true)?;
    let pipe = PIPE.get_or_init(|| SignalPipe { read, write });
    PIPE_WRITE_FD.store(pipe.write.as_raw_fd(), Ordering::Release);
    Ok(pipe)
}

extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: `__errno_location` returns this thread's errno. With SA_SIGINFO the kernel passes a
    // valid `info`. `write` is async-signal-safe and gets a live buffer; if the pipe is full, the
    // write fails and the signal is lost, but earlier signals are still in the pipe.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let from_terminal = u8::from((*info).si_code == libc::SI_KERNEL);
        let record = [u8::try_from(number).unwrap_or(0), from_terminal];
        libc::write(PIPE_WRITE_FD.load(Ordering::Acquire), record.as_ptr().cast(), 2);
        *errno = saved;
    }
}

/// Installs our handlers. A signal that was ignored (`nohup`) stays ignored.
pub(crate) fn install_handlers() -> io::Result<SavedHandlers> {
    let mut saved = SavedHandlers(Vec::new());
    for number in SIGNALS {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero sigaction is valid; both pointers are live for the call; the handler
        // has the SA_SIGINFO signature and does only async-signal-safe work.
        let old = unsafe {
            let mut new: libc::sigaction = MaybeUninit::zeroed().assume_init();
            new.sa_sigaction = on_signal as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&raw mut new.sa_mask);
            if libc::sigaction(number, std::ptr::null(), old.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let old = old.assume_init();
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            if libc::sigaction(number, &raw const new, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            old
        };
        saved.0.push((number, old));
    }
    Ok(saved)
}

/// Restores the former handlers.
pub(crate) fn restore_handlers(saved: &SavedHandlers) {
    for (number, old) in &saved.0 {
        // SAFETY: `old` came from sigaction and is live for the call.
        unsafe { libc::sigaction(*number, &raw const *old, std::ptr::null_mut()) };
    }
}

/// Ends this process by the signal itself, so that its parent sees the real cause.
pub(crate) fn die_of(number: i32) -> ! {
    // SAFETY: plain system calls on integers; signal masks are initialised by sigemptyset.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let mut mask: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut mask);
        libc::sigaddset(&raw mut mask, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const mask, std::ptr::null_mut());
        libc::raise(number);
    }
    std::process::exit(128 + number)
}

/// Gives this process, which must have only one thread, and the processes that it starts a separate
/// host name.
pub(crate) fn own_host_name(name: &str) -> io::Result<()> {
    // SAFETY: unsafe only for file descriptors, which stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUTS) }?;
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Makes the command start in a new session, and sets the nice level of the process and of the
/// session. If the kernel refuses, the level stays unchanged.
pub(crate) fn own_session(command: &mut Command, nice: Nice) {
    let (level, text) = match nice {
        Nice::High => (-19, c"-19"),
        Nice::Normal => (0, c"0"),
    };
    let set = move || {
        // SAFETY: only async-signal-safe system calls on static strings and integers, as required
        // between fork and exec.
        unsafe {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd >= 0 {
                libc::write(fd, text.as_ptr().cast(), text.count_bytes());
                libc::close(fd);
            }
            libc::setpriority(libc::PRIO_PROCESS, 0, level);
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no locks.
    unsafe { command.pre_exec(set) };
}

/// Nice level of a program, which sets its share of the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nice {
    High,
    Normal,
}

/// Scheduling policy and priority of the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct Scheduling {
    policy: libc::c_int,
    priority: libc::c_int,
}

/// Returns the scheduling of the calling thread.
pub(crate) fn scheduling() -> io::Result<Scheduling> {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread; `param` is live for the call.
    let policy = unsafe {
        libc::sched_getparam(0, &raw mut param);
        libc::sched_getscheduler(0)
    };
    if policy < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Scheduling { policy, priority: param.sched_priority })
}

/// Sets the scheduling of the calling thread.
pub(crate) fn set_scheduling(scheduling: Scheduling) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: scheduling.priority };
    // SAFETY: pid 0 is the calling thread; `param` is live for the call.
    if unsafe { libc::sched_setscheduler(0, scheduling.policy, &raw const param) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Scheduling {
    /// Returns `SCHED_FIFO` with a priority. Threads and processes that the thread starts get
    /// normal scheduling.
    pub(crate) fn fifo(priority: u8) -> Scheduling {
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        Scheduling { policy, priority: priority.into() }
    }
}

/// Returns the clock ticks per second of `/proc/stat`.
pub(crate) fn clock_ticks_per_s() -> u64 {
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}
