//! A global allocator that counts the bytes that each thread has allocated and not freed.
//!
//! A soak has to find out whether memory grows. The resident set of a process depends on whole
//! pages and on the allocator, but the sum of live allocations is exact. The sum is kept for each
//! thread, so that tests that run at the same time do not change it. An allocation that another
//! thread frees is counted wrongly; this does not matter, because a soak uses only one thread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Returns the number of bytes that the calling thread has allocated and not freed.
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: usize) {
    count(i64::try_from(bytes).unwrap_or(i64::MAX));
}

fn count(bytes: i64) {
    // The counter of an ending thread may no longer exist; it is not read any more.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to the system's allocator with the same arguments; the counter is a
// thread-local integer without a destructor, so access to it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the requirements of `alloc`, which are those of the system's
        // allocator.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            add(layout.size());
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(i64::try_from(layout.size()).map_or(i64::MIN, |bytes| -bytes));
        // SAFETY: `at` came from `alloc` above, and so from the system's allocator, with this
        // layout.
        unsafe { System.dealloc(at, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_counts_until_it_is_freed() {
        let before = live_bytes();
        let held = vec![1u8; 100_000];
        assert!(live_bytes() - before >= 100_000);
        drop(held);
        assert_eq!(live_bytes(), before);
    }
}
