//! The mapped memory of a front end: regions, each of which has an address in the guest and another
//! address in the front end.
//!
//! Requests and rings name buffers by guest addresses, and rings by front-end addresses. An address
//! outside of all regions cannot be read or written. If the file of a region is truncated, zeros
//! replace the region (`sys::guard`), and the session ends.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{SealFlags, fstatfs};
use vm_memory::mmap::MmapRegion;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    VolatileMemory, VolatileSlice,
};

use crate::message::Region;
use crate::sys::guard::Guard;

/// Largest number of regions of one memory. One table of all regions has up to 8; regions that are
/// added one by one (`CONFIGURE_MEM_SLOTS`) may reach this limit.
pub const REGIONS_MAX: usize = 32;
/// Largest memory of one front end in bytes. Files may be sparse, so a large size costs the front
/// end nothing.
pub const BYTES_MAX: u64 = 4 << 40;
/// Largest memory of all front ends of a process in bytes: half of the process's address space on
/// x86-64 and aarch64, so that address space remains for other mappings, such as stacks.
const ALL_BYTES_MAX: u64 = 64 << 40;

/// Bytes that front ends share now, in the whole process.
static SHARED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that are reserved from [`ALL_BYTES_MAX`]. They are released when the value is dropped.
#[derive(Debug)]
struct Share(u64);

impl Share {
    fn take(bytes: u64) -> Option<Self> {
        let more = |all: u64| all.checked_add(bytes).filter(|all| *all <= ALL_BYTES_MAX);
        SHARED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        SHARED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// An address that lies in no region, or is not aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// All memory that a front end shares.
#[derive(Debug, Default)]
pub struct Memory {
    /// The regions in the order of their addresses. Usually an access lies in one region, and the
    /// search for this region is the largest part of its cost.
    maps: Vec<Map>,
    /// All regions together, for accesses that span several regions.
    regions: GuestMemoryMmap,
}

/// A mapped region and its guest address.
#[derive(Debug)]
struct Map {
    at: u64,
    bytes: u64,
    place: Region,
    /// The guard is dropped before the mapping.
    guard: Guard,
    region: Arc<GuestRegionMmap>,
    _share: Share,
}

impl Memory {
    /// Maps the regions of a memory table, each from its file with the seals of the file.
    ///
    /// # Errors
    /// An error text, if `regions` is empty or [`Memory::add`] fails.
    pub(crate) fn map(regions: Vec<(Region, OwnedFd, SealFlags)>) -> Result<Self, &'static str> {
        let mut memory = Self::default();
        for (region, file, seals) in regions {
            memory.add(region, file, seals)?;
        }
        if memory.maps.is_empty() { Err("a memory table without regions") } else { Ok(memory) }
    }

    /// Maps another region, from a file in memory with these seals.
    ///
    /// # Errors
    /// An error text, in each of these cases: there are already [`REGIONS_MAX`] regions or
    /// [`BYTES_MAX`] bytes; the region overlaps another region, wraps around, or lies outside of
    /// its file; the file supports seals but is not sealed against truncation.
    pub(crate) fn add(
        &mut self,
        place: Region,
        file: OwnedFd,
        seals: SealFlags,
    ) -> Result<(), &'static str> {
        if self.maps.len() == REGIONS_MAX {
            return Err("more regions of memory than GET_MAX_MEM_SLOTS says");
        }
        if !seals.intersects(SealFlags::SHRINK | SealFlags::SEAL) {
            return Err("memory that lacks the seal F_SEAL_SHRINK, which it could have");
        }
        let file = File::from(file);
        let end = place.offset.checked_add(place.bytes);
        let length = file.metadata().map_err(|_| "memory without a size")?.len();
        let wraps = place.user.checked_add(place.bytes).is_none();
        if place.bytes == 0 || wraps || end.is_none_or(|end| end > length) {
            return Err("a region that is not in its file");
        }
        let mapped: u64 = self.maps.iter().map(|map| map.place.bytes).sum();
        if mapped.checked_add(place.bytes).is_none_or(|bytes| bytes > BYTES_MAX) {
            return Err("more memory than one front end may share");
        }
        let share = Share::take(place.bytes).ok_or("more memory than all front ends may share")?;
        // A mapping of huge pages can only be removed in whole pages.
        let page = huge_page_bytes(&file);
        if page.is_some_and(|page| !is_whole(&place, page)) {
            return Err("a region that does not consist of whole huge pages");
        }
        let map = |place: &Region, file, share| {
            let bytes = usize::try_from(place.bytes).ok()?;
            let map: MmapRegion =
                MmapRegion::from_file(FileOffset::new(file, place.offset), bytes).ok()?;
            let (start, bytes) = (map.as_ptr().cast_const(), map.size());
            let region = GuestRegionMmap::new(map, GuestAddress(place.guest))?;
            let guard = Guard::new(start, bytes)?;
            let (at, bytes) = (region.start_addr().0, region.len());
            Some(Map { at, bytes, place: *place, guard, region: Arc::new(region), _share: share })
        };
        let map = map(&place, file, share).ok_or("memory that cannot be mapped")?;
        let place = self.maps.partition_point(|before| before.at < map.at);
        self.maps.insert(place, map);
        self.find().inspect_err(|_| {
            self.maps.remove(place);
        })
    }

    /// Removes the region with these addresses and this size. Returns whether the region existed.
    pub(crate) fn remove(&mut self, of: Region) -> bool {
        let name = |of: &Region| (of.guest, of.user, of.bytes);
        let Some(place) = self.maps.iter().position(|map| name(&map.place) == name(&of)) else {
            return false;
        };
        self.maps.remove(place);
        if self.find().is_err() {
            // No region remains.
            self.regions = GuestMemoryMmap::default();
        }
        true
    }

    fn find(&mut self) -> Result<(), &'static str> {
        let all = self.maps.iter().map(|map| Arc::clone(&map.region)).collect();
        let regions = GuestMemoryMmap::from_arc_regions(all);
        self.regions = regions.map_err(|_| "regions of memory that overlap")?;
        Ok(())
    }

    /// Whether the file of a region was truncated or cannot get pages, so that zeros replace the
    /// region.
    pub(crate) fn is_lost(&self) -> bool {
        self.maps.iter().any(|map| map.guard.is_lost())
    }

    /// Returns the guest address of a front-end address.
    pub(crate) fn guest_address(&self, user: u64) -> Option<u64> {
        let mut places = self.maps.iter().map(|map| &map.place);
        places.find_map(|place| {
            let offset = user.checked_sub(place.user).filter(|offset| *offset < place.bytes)?;
            place.guest.checked_add(offset)
        })
    }

    /// Returns `bytes` bytes at a guest address, if they lie in one region.
    pub(crate) fn slice(&self, at: u64, bytes: usize) -> Option<VolatileSlice<'_>> {
        let map = self.maps.iter().find(|map| at.wrapping_sub(map.at) < map.bytes)?;
        let offset = usize::try_from(at.wrapping_sub(map.at)).ok()?;
        let mapping: &MmapRegion = &map.region;
        VolatileMemory::get_slice(mapping, offset, bytes).ok()
    }

    /// Fills `into` with the bytes at a guest address.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        if let Some(slice) = self.slice(at, into.len()) {
            slice.copy_to(into);
            return Ok(());
        }
        self.regions.read_slice(into, GuestAddress(at)).map_err(|_| Fault)
    }

    /// Reads a descriptor: sixteen bytes as a little-endian number.
    pub(crate) fn read_u128(&self, at: u64) -> Result<u128, Fault> {
        if let Some(slice) = self.slice(at, 16)
            && let Ok(number) = slice.get_ref::<u128>(0)
        {
            return Ok(u128::from_le(number.load()));
        }
        let mut raw = [0; 16];
        self.read(at, &mut raw)?;
        Ok(u128::from_le_bytes(raw))
    }

    /// Prefetches the first cache lines at a guest address into the processor, if the address is
    /// valid.
    pub(crate) fn touch(&self, at: u64, bytes: u32) {
        /// Bytes of a cache line.
        const LINE: usize = 64;
        let end = usize::try_from(bytes).map_or(1, |bytes| bytes.clamp(1, LINE + 1));
        let Some(slice) = self.slice(at, end) else { return };
        for place in [0, end - 1] {
            std::hint::black_box(slice.load::<u8>(place, Ordering::Relaxed).ok());
        }
    }

    /// Writes all of `bytes` to a guest address.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(slice) = self.slice(at, bytes.len()) {
            slice.copy_from(bytes);
            return Ok(());
        }
        self.regions.write_slice(bytes, GuestAddress(at)).map_err(|_| Fault)
    }

    /// Reads a little-endian number that the other side changes, with acquire ordering: what the
    /// other side wrote before the number is visible afterwards.
    pub fn load(&self, at: u64) -> Result<u16, Fault> {
        let slice = self.slice(at, 2).ok_or(Fault)?;
        slice.load(0, Ordering::Acquire).map(u16::from_le).map_err(|_| Fault)
    }

    /// Writes a number that the other side reads, with release ordering: a reader of the number
    /// also sees all earlier writes.
    pub fn store(&self, at: u64, value: u16) -> Result<(), Fault> {
        let slice = self.slice(at, 2).ok_or(Fault)?;
        slice.store(value.to_le(), 0, Ordering::Release).map_err(|_| Fault)
    }
}

/// Whether a region begins and ends at multiples of this page size.
fn is_whole(place: &Region, page: u64) -> bool {
    place.bytes.is_multiple_of(page) && place.offset.is_multiple_of(page)
}

/// Returns the page size of a file in huge pages; `None` for other files.
fn huge_page_bytes(file: &File) -> Option<u64> {
    const HUGETLBFS: i64 = 0x9584_58f6;
    let of = fstatfs(file).ok()?;
    let is_huge = of.f_type == HUGETLBFS;
    is_huge.then(|| u64::try_from(of.f_bsize).ok())?.filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    /// Returns a memory file of any size without allocated pages.
    fn sparse(bytes: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("sparse", flags).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        file
    }

    #[test]
    fn regression_a_front_end_shares_so_many_bytes_and_the_process_keeps_room() {
        let half = BYTES_MAX / 2;
        let mut memory = Memory::default();
        let mut add = |at: u64, bytes: u64| {
            let place = Region { guest: at, user: at, bytes, offset: 0 };
            memory.add(place, sparse(bytes), SealFlags::SHRINK)
        };
        add(0, half).unwrap();
        add(half, half).unwrap();
        assert_eq!(add(BYTES_MAX, 4096), Err("more memory than one front end may share"));
        let shared = SHARED_BYTES.load(Ordering::Relaxed);
        let rest = Share::take(ALL_BYTES_MAX - shared).unwrap();
        assert!(Share::take(1).is_none());
        drop((rest, memory));
        assert!(SHARED_BYTES.load(Ordering::Relaxed) < shared);
    }
}
