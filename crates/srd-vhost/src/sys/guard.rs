//! Protects the process from memory of front ends whose file is truncated, or whose pages cannot be
//! allocated.
//!
//! A file that is not sealed against truncation may become shorter while it is mapped. An access
//! beyond the new end raises SIGBUS, which ends a process. If the address is in a registered
//! region, the handler here maps zeros in place of the whole region and marks the region as lost
//! for its owner; then the access continues. For all other addresses, and for signals that a
//! process has sent, the handler does what the former handler did. (libwayland does this for
//! buffers of clients.)
//!
//! The handler may interrupt any thread anywhere, so it accesses only atomic variables and calls
//! nothing but `mmap`. This call must not fail, because the process would end. So the zeros come
//! from a file in memory without pages, of which each region has a separate part. Unlike private
//! memory, a shared mapping of this file is charged neither to the machine's commit limit
//! (`vm.overcommit_memory=2`) nor to the data limit of this process. If not even one page can be
//! allocated, pages that were reserved beforehand replace the pages that are accessed.
//!
//! Bound: [`RANGES_MAX`] regions in the whole process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

/// Largest number of regions of all front ends of a process.
pub(crate) const RANGES_MAX: usize = 8192;

/// Size of each region's part of the file in bytes, which is more than the size of any region.
const PART_BYTES: u64 = 1 << 44;
const _: () = assert!((RANGES_MAX as u64).checked_mul(PART_BYTES).is_some());

/// Size in bytes of the spare pages: pages of the file after the parts of all regions, allocated
/// beforehand. If a part cannot get pages, the spare pages replace the accessed pages of its
/// region.
const SPARE_BYTES: usize = 64 << 10;
/// Number of faults in one region after which its part of the file evidently cannot get pages.
/// Fewer threads than this fault at the same time.
const FAULTS_MAX: usize = 256;

/// Start address of a range that is still being set up.
const RESERVED: usize = 1;

/// A range of addresses. An unused range has the start address 0.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
    /// Number of failed accesses to the range since it was set up.
    faults: AtomicUsize,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
        faults: AtomicUsize::new(0),
    }
}; RANGES_MAX];

/// Number of ranges that have ever been used. Ranges from this index on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The file of zeros, and the former action for SIGBUS; `None` if the file could not be created, or
/// the handler could not be installed.
static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();

struct Installed {
    zeros: OwnedFd,
    before: libc::sigaction,
}

/// Registration of a region with the handler. The guard has to be dropped before the mapping.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Registers a mapping of shared memory; `None` if there are too many mappings, the mapping is
    /// too large, or there is no handler.
    pub(crate) fn new(start: *const u8, bytes: usize) -> Option<Self> {
        INSTALLED.get_or_init(install).as_ref()?;
        if bytes as u64 > PART_BYTES {
            return None;
        }
        let start = start.addr();
        let end = start.checked_add(bytes)?.checked_next_multiple_of(page_bytes())?;
        let claim = |range: &Range| {
            range.start.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = RANGES.iter().position(claim)?;
        RANGES[place].is_lost.store(false, Ordering::Relaxed);
        RANGES[place].faults.store(0, Ordering::Relaxed);
        RANGES[place].end.store(end, Ordering::Release);
        RANGES[place].start.store(start, Ordering::Release);
        USED.fetch_max(place + 1, Ordering::AcqRel);
        Some(Self(place))
    }

    /// Whether zeros replace the region.
    pub(crate) fn is_lost(&self) -> bool {
        RANGES[self.0].is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(installed) = INSTALLED.get().and_then(Option::as_ref)
            && self.is_lost()
        {
            // The next region in this slot has to begin with zeros.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&installed.zeros, flags, part(self.0), PART_BYTES);
        }
        RANGES[self.0].end.store(0, Ordering::Release);
        RANGES[self.0].start.store(0, Ordering::Release);
    }
}

/// Returns the offset of a slot's part in the file of zeros.
fn part(place: usize) -> u64 {
    place as u64 * PART_BYTES
}

fn page_bytes() -> usize {
    // SAFETY: the call only queries a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn install() -> Option<Installed> {
    let zeros = memfd_create("srd-vhost-zeros", MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&zeros, part(RANGES_MAX)).ok()?;
    fallocate(&zeros, FallocateFlags::empty(), part(RANGES_MAX), SPARE_BYTES as u64).ok()?;
    // SAFETY: all-zero is a valid sigaction: the default one without flags.
    let (mut before, mut action) =
        unsafe { (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed::<libc::sigaction>()) };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both pointers are to actions, and the handler has the form that SA_SIGINFO requires.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
    (done == 0).then_some(Installed { zeros, before })
}

/// Returns the slot of the range that contains an address, its start and its end.
fn find(address: usize) -> Option<(usize, usize, usize)> {
    let used = USED.load(Ordering::Acquire).min(RANGES_MAX);
    RANGES[..used].iter().enumerate().find_map(|(place, range)| {
        let start = range.start.load(Ordering::Acquire);
        let end = range.end.load(Ordering::Acquire);
        let is_same = range.start.load(Ordering::Acquire) == start;
        let has = start > RESERVED && is_same && (start..end).contains(&address);
        has.then_some((place, start, end))
    })
}

/// Returns the start and end of the aligned [`SPARE_BYTES`] that contain an address, cut to its
/// region, and the offset of the spare bytes in the file of zeros.
fn piece(address: usize, start: usize, end: usize) -> (usize, usize, libc::off_t) {
    let first = (address & !(SPARE_BYTES - 1)).max(start);
    let last = (address | (SPARE_BYTES - 1)).saturating_add(1).min(end);
    (first, last, libc::off_t::try_from(part(RANGES_MAX)).unwrap_or(0))
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a description of the signal. Its address is read only if the kernel
    // itself has raised the signal.
    let (code, address) = unsafe {
        let code = (*info).si_code;
        (code, if code > 0 { (*info).si_addr().addr() } else { 0 })
    };
    if let Some((place, start, end)) = find(address).filter(|_| code > 0)
        && let Some(installed) = INSTALLED.get().and_then(Option::as_ref)
        && let Ok(offset) = libc::off_t::try_from(part(place))
    {
        let faults = RANGES[place].faults.fetch_add(1, Ordering::Relaxed);
        let (start, end, offset) =
            if faults < FAULTS_MAX { (start, end, offset) } else { piece(address, start, end) };
        // SAFETY: each thread has a separate `errno`.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: this is the mapping of a front end's memory, which stays mapped while it is
        // registered. All code reads and writes it as bytes that may change at any time.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(start),
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                installed.zeros.as_raw_fd(),
                offset,
            )
        };
        // SAFETY: each thread has a separate `errno`.
        unsafe { *libc::__errno_location() = errno };
        if mapped != libc::MAP_FAILED {
            RANGES[place].is_lost.store(true, Ordering::Release);
            return;
        }
    }
    pass_on(signal, code, info, context);
}

/// Does what the former action for SIGBUS did.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let before = INSTALLED.get().and_then(Option::as_ref).map(|installed| &installed.before);
    let (of, flags) = before.map_or((libc::SIG_DFL, 0), |of| (of.sa_sigaction, of.sa_flags));
    let is_sent = code <= 0;
    match of {
        libc::SIG_IGN if is_sent => {}
        // A failed access cannot be ignored: the kernel ends the process even if SIGBUS is ignored.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: an all-zero action is the default action. A failed access fails again after
            // the return, and a signal that a process sent is sent again.
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
            // SAFETY: a handler with this flag has this signature.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler without that flag has this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_in_its_region_and_has_the_address() {
        let (start, end) = (0x1_2000, 0x5_3000);
        for address in [start, start + 1, 0x1_ffff, 0x2_0000, 0x3_1234, end - 1] {
            let (first, last, _) = piece(address, start, end);
            assert!(start <= first && first <= address && address < last && last <= end);
            assert!(last - first <= SPARE_BYTES && first % 4096 == 0 && last % 4096 == 0);
        }
    }

    /// More than [`RANGES_MAX`] regions are refused. A region that is removed frees its slot.
    #[test]
    fn regions_are_bounded_and_come_back() {
        // No mapping has these addresses, and no access happens there.
        let at = |n: usize| std::ptr::without_provenance::<u8>((n + 16) * 4096);
        let mut all: Vec<Guard> = (0..).map_while(|n| Guard::new(at(n), 4096)).collect();
        // Other tests of this process may occupy some slots.
        assert!(all.len() > RANGES_MAX / 2 && all.len() <= RANGES_MAX, "{}", all.len());
        assert!(Guard::new(at(0), 4096).is_none());
        all.pop();
        assert!(Guard::new(at(0), 4096).is_some_and(|guard| !guard.is_lost()));
    }
}
