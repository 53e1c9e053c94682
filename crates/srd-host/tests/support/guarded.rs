//! Memory between inaccessible pages.

use srd_efa::layer::Iov;

/// The page size of the kernel, or a multiple of it, in bytes.
const PAGE: usize = 65_536;

/// A buffer that ends where its accessible pages end, so that any access beyond it fails.
pub(crate) struct Guarded {
    map: *mut libc::c_void,
    /// Bytes of the mapping, including the inaccessible pages.
    whole: usize,
    bytes: usize,
}

// SAFETY: the value is only an address; users of the memory are checked elsewhere.
unsafe impl Send for Guarded {}

impl Guarded {
    pub(crate) fn new(bytes: usize) -> Self {
        let inner = bytes.div_ceil(PAGE).max(1) * PAGE;
        let whole = inner + 2 * PAGE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let map = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0)
        };
        assert!(map != libc::MAP_FAILED, "no memory");
        // SAFETY: the range is the inner part of the mapping.
        let code = unsafe {
            libc::mprotect(map.byte_add(PAGE), inner, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(code, 0);
        Self { map, whole, bytes }
    }

    pub(crate) fn piece(&self) -> Iov {
        let end = self.map.expose_provenance() + self.whole - PAGE;
        Iov { addr: (end - self.bytes) as u64, length: self.bytes as u64 }
    }

    /// Makes the memory inaccessible.
    pub(crate) fn forbid(&self) {
        // SAFETY: the mapping belongs to this value.
        assert_eq!(unsafe { libc::mprotect(self.map, self.whole, libc::PROT_NONE) }, 0);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and is not used from now on.
        unsafe { libc::munmap(self.map, self.whole) };
    }
}
