//! The memory of a front end, mapped: regions that have an address for the guest, and another one
//! for the front end itself.
//!
//! Buffers are named by guest addresses, rings by addresses of the front end. What lies in no
//! region cannot be read or written.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::mmap::MmapRegion;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    VolatileMemory, VolatileSlice,
};

use crate::message::Region;

/// Regions of one memory: what the protocol has without `CONFIGURE_MEM_SLOTS`.
pub const REGIONS_MAX: usize = 8;

/// What lies in no region, or not aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// All memory that the front end shares.
#[derive(Debug)]
pub struct Memory {
    /// For what lies in several regions.
    regions: GuestMemoryMmap,
    /// The same regions: most of what is asked for lies in one, and finding that is most of the
    /// work.
    maps: Vec<Map>,
    places: Vec<Region>,
}

/// A region, and where the guest has it.
#[derive(Debug)]
struct Map {
    at: u64,
    bytes: u64,
    region: Arc<GuestRegionMmap>,
}

impl Memory {
    /// Maps the regions.
    ///
    /// # Errors
    /// There is none, they overlap or wrap, or one is not in its file.
    pub fn map(regions: Vec<(Region, OwnedFd)>) -> Result<Self, Fault> {
        let mut mapped = Vec::new();
        let mut places = Vec::new();
        for (region, file) in regions {
            let file = File::from(file);
            let end = region.offset.checked_add(region.bytes).ok_or(Fault)?;
            let length = file.metadata().map_err(|_| Fault)?.len();
            let wraps = region.user.checked_add(region.bytes).is_none();
            if region.bytes == 0 || end > length || wraps {
                return Err(Fault);
            }
            let bytes = usize::try_from(region.bytes).map_err(|_| Fault)?;
            let at = FileOffset::new(file, region.offset);
            let map: MmapRegion = MmapRegion::from_file(at, bytes).map_err(|_| Fault)?;
            mapped.push(GuestRegionMmap::new(map, GuestAddress(region.guest)).ok_or(Fault)?);
            places.push(region);
        }
        mapped.sort_by_key(GuestMemoryRegion::start_addr);
        let all: Vec<Arc<GuestRegionMmap>> = mapped.into_iter().map(Arc::new).collect();
        let regions = GuestMemoryMmap::from_arc_regions(all.clone()).map_err(|_| Fault)?;
        let map = |region: Arc<GuestRegionMmap>| Map {
            at: region.start_addr().0,
            bytes: region.len(),
            region,
        };
        let maps = all.into_iter().map(map).collect();
        Ok(Self { regions, maps, places })
    }

    /// The guest address of what the front end has at this address of its own.
    pub(crate) fn guest_address(&self, user: u64) -> Option<u64> {
        let mut places = self.places.iter();
        places.find_map(|place| {
            let offset = user.checked_sub(place.user).filter(|offset| *offset < place.bytes)?;
            place.guest.checked_add(offset)
        })
    }

    /// So many bytes at this place, if they lie in one region.
    pub(crate) fn slice(&self, at: u64, bytes: usize) -> Option<VolatileSlice<'_>> {
        let map = self.maps.iter().find(|map| at.wrapping_sub(map.at) < map.bytes)?;
        let offset = usize::try_from(at.wrapping_sub(map.at)).ok()?;
        let mapping: &MmapRegion = &map.region;
        VolatileMemory::get_slice(mapping, offset, bytes).ok()
    }

    /// Reads all of `into`.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        if let Some(slice) = self.slice(at, into.len()) {
            slice.copy_to(into);
            return Ok(());
        }
        self.regions.read_slice(into, GuestAddress(at)).map_err(|_| Fault)
    }

    /// Sixteen bytes as a little-endian number: a descriptor.
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

    /// Has the processor fetch the beginning of what is there, if anything is.
    pub(crate) fn touch(&self, at: u64, bytes: u32) {
        /// Bytes that the processor fetches at once.
        const LINE: usize = 64;
        let end = usize::try_from(bytes).map_or(1, |bytes| bytes.clamp(1, LINE + 1));
        let Some(slice) = self.slice(at, end) else { return };
        for place in [0, end - 1] {
            std::hint::black_box(slice.load::<u8>(place, Ordering::Relaxed).ok());
        }
    }

    /// Writes all of `bytes`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(slice) = self.slice(at, bytes.len()) {
            slice.copy_from(bytes);
            return Ok(());
        }
        self.regions.write_slice(bytes, GuestAddress(at)).map_err(|_| Fault)
    }

    /// A little-endian number that the other side changes. What it wrote before is seen, too.
    pub fn load(&self, at: u64) -> Result<u16, Fault> {
        let slice = self.slice(at, 2).ok_or(Fault)?;
        slice.load(0, Ordering::Acquire).map(u16::from_le).map_err(|_| Fault)
    }

    /// A number that the other side looks at. Once it sees it, it sees what was written before.
    pub fn store(&self, at: u64, value: u16) -> Result<(), Fault> {
        let slice = self.slice(at, 2).ok_or(Fault)?;
        slice.store(value.to_le(), 0, Ordering::Release).map_err(|_| Fault)
    }
}
