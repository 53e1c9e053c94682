//! Memory of front ends whose file is cut off, or whose pages cannot be had.
//!
//! A file that is not sealed against it may become shorter while it is mapped. An access to what
//! is not there any more raises SIGBUS, which ends a process. The handler here maps zeros in the
//! place of the whole region if the address is one of a region that was registered, notes that for
//! its owner, and the access goes on; for all other addresses, and for signals that a process has
//! sent, it does what was done before it was there. (libwayland does so for buffers of clients.)
//!
//! Everything that the handler touches is in atomic variables, and it calls nothing but `mmap`: it
//! may interrupt any thread anywhere.
//!
//! Bound: [`RANGES_MAX`] regions at once, in all of the process.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Regions of all front ends of a process.
pub(crate) const RANGES_MAX: usize = 8192;

/// The beginning of a range that is being set up.
const RESERVED: usize = 1;

/// A range of addresses; it begins at 0 if there is none.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; RANGES_MAX];

/// Ranges beyond this place were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The action for SIGBUS before ours; none if the handler could not be installed.
static BEFORE: OnceLock<Option<Before>> = OnceLock::new();

struct Before(libc::sigaction);

/// A region that the handler knows. It has to go before its mapping does.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Registers a mapping of shared memory; `None` if there are too many.
    pub(crate) fn new(start: *const u8, bytes: usize) -> Option<Self> {
        BEFORE.get_or_init(install).as_ref()?;
        let start = start.addr();
        let end = start.checked_add(bytes)?.checked_next_multiple_of(page_bytes())?;
        let claim = |range: &Range| {
            range.start.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = RANGES.iter().position(claim)?;
        RANGES[place].is_lost.store(false, Ordering::Relaxed);
        RANGES[place].end.store(end, Ordering::Release);
        RANGES[place].start.store(start, Ordering::Release);
        USED.fetch_max(place + 1, Ordering::AcqRel);
        Some(Self(place))
    }

    /// Whether zeros are in the place of the region.
    pub(crate) fn is_lost(&self) -> bool {
        RANGES[self.0].is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        RANGES[self.0].end.store(0, Ordering::Release);
        RANGES[self.0].start.store(0, Ordering::Release);
    }
}

fn page_bytes() -> usize {
    // SAFETY: asks for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn install() -> Option<Before> {
    // SAFETY: all-zero is a valid sigaction: the default one without flags.
    let (mut before, mut action) =
        unsafe { (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed::<libc::sigaction>()) };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both point to actions, and the handler has the form that SA_SIGINFO asks for.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
    (done == 0).then_some(Before(before))
}

/// The range that has an address.
fn find(address: usize) -> Option<(&'static Range, usize, usize)> {
    let used = USED.load(Ordering::Acquire).min(RANGES_MAX);
    RANGES[..used].iter().find_map(|range| {
        let start = range.start.load(Ordering::Acquire);
        let end = range.end.load(Ordering::Acquire);
        let is_same = range.start.load(Ordering::Acquire) == start;
        let has = start > RESERVED && is_same && (start..end).contains(&address);
        has.then_some((range, start, end))
    })
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands over a description of the signal. Its address is only read if the
    // kernel itself has raised the signal.
    let (code, address) = unsafe {
        let code = (*info).si_code;
        (code, if code > 0 { (*info).si_addr().addr() } else { 0 })
    };
    if let Some((range, start, end)) = find(address).filter(|_| code > 0) {
        // SAFETY: the number of the last error is this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: this is the mapping of a front end's memory, which is registered for as long as
        // it is mapped. All of it is read and written as bytes that may change at any time.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if mapped != libc::MAP_FAILED {
            range.is_lost.store(true, Ordering::Release);
            return;
        }
    }
    pass_on(signal, code, info, context);
}

/// Does what was done before there was a handler.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let before = BEFORE.get().and_then(Option::as_ref);
    let (of, flags) = before.map_or((libc::SIG_DFL, 0), |of| (of.0.sa_sigaction, of.0.sa_flags));
    let is_sent = code <= 0;
    match of {
        libc::SIG_IGN if is_sent => {}
        // An access that failed cannot be passed over: the kernel ends the process then, too.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: an all-zero action is the default one. An access that failed fails again
            // when this returns, and a signal that was sent is sent again.
            unsafe {
                let action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const action, null_mut());
                if is_sent {
                    libc::raise(signal);
                }
            }
        }
        handler if flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: a handler with this flag has this form.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler without that flag has this form.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than [`RANGES_MAX`] regions are refused, and one that goes makes room.
    #[test]
    fn regions_are_bounded_and_come_back() {
        // Addresses that no mapping has: nothing faults there.
        let at = |n: usize| std::ptr::without_provenance::<u8>((n + 16) * 4096);
        let mut all: Vec<Guard> = (0..).map_while(|n| Guard::new(at(n), 4096)).collect();
        // Other tests of this process may hold some.
        assert!(all.len() > RANGES_MAX / 2 && all.len() <= RANGES_MAX, "{}", all.len());
        assert!(Guard::new(at(0), 4096).is_none());
        all.pop();
        assert!(Guard::new(at(0), 4096).is_some_and(|guard| !guard.is_lost()));
    }
}
