//! The public addresses that the helper may route to the internet's side. Any other address of a
//! route could be one that this machine needs, and a program that controls the card would get the
//! packets to it.
//!
//! Addresses of three kinds are permitted: addresses that the file of the cloud named at the start
//! or at a reload, or that a file names which only root may change; addresses of [`PUBLIC_POOL`];
//! and addresses of added instances.
//!
//! Bound: [`NAMED_ADDRESSES_MAX`] addresses of files.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use srd_vpc::object::PUBLIC_POOL;
use srd_vpc_file::VpcFile;

use crate::cloud::world::{Vpc, is_for_added};

/// Maximum number of addresses that files have named since the start.
const NAMED_ADDRESSES_MAX: usize = 1 << 20;

/// Addresses that may be routed.
#[derive(Debug, Default)]
pub(super) struct Publics {
    named: BTreeSet<Ipv4Addr>,
}

impl Publics {
    /// Permits the public addresses of the file at the start.
    pub(super) fn new(named: &BTreeSet<Ipv4Addr>) -> Result<Self> {
        let mut publics = Self::default();
        publics.add(named)?;
        Ok(publics)
    }

    /// Permits the public addresses of a file in addition.
    pub(super) fn add_of(&mut self, file: &VpcFile) -> Result<()> {
        self.add(&Vpc::publics(&file.world))
    }

    fn add(&mut self, named: &BTreeSet<Ipv4Addr>) -> Result<()> {
        let all: BTreeSet<Ipv4Addr> =
            named.iter().copied().filter(|of| !is_of_block(*of)).collect();
        let more = all.difference(&self.named).count();
        if self.named.len() + more > NAMED_ADDRESSES_MAX {
            bail!(
                "files have named more than {NAMED_ADDRESSES_MAX} public addresses since the \
                 start: restart the card"
            );
        }
        self.named.extend(all);
        Ok(())
    }

    /// Checks that all addresses may be routed.
    pub(super) fn check(&self, addresses: &BTreeSet<Ipv4Addr>) -> Result<()> {
        let may = |of: &Ipv4Addr| is_of_block(*of) || self.named.contains(of);
        let Some(other) = addresses.iter().find(|of| !may(of)) else { return Ok(()) };
        bail!(
            "the public address {other} is not routed: it is neither in the file of the \
             configuration, nor in a file that only root may change, nor in {PUBLIC_POOL}"
        )
    }
}

/// Whether an address belongs to one of the fixed blocks.
fn is_of_block(address: Ipv4Addr) -> bool {
    PUBLIC_POOL.contains(&address) || is_for_added(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(all: &[[u8; 4]]) -> BTreeSet<Ipv4Addr> {
        all.iter().map(|of| Ipv4Addr::from(*of)).collect()
    }

    #[test]
    fn addresses_of_files_and_of_the_fixed_blocks_are_permitted_and_no_others() {
        let mut publics = Publics::new(&set(&[[192, 0, 2, 7]])).unwrap();
        let fixed =
            [[198, 18, 0, 0], [198, 19, 255, 255], [198, 51, 100, 128], [198, 51, 100, 247]];
        publics.check(&set(&fixed)).unwrap();
        publics.check(&set(&[[192, 0, 2, 7]])).unwrap();
        publics.check(&BTreeSet::new()).unwrap();
        // Addresses of this machine, of others, and at the borders of the blocks.
        let others = [
            [127, 0, 0, 1],
            [0, 0, 0, 0],
            [255, 255, 255, 255],
            [8, 8, 8, 8],
            [10, 0, 0, 1],
            [192, 0, 2, 8],
            [203, 0, 113, 1],
            [198, 17, 255, 255],
            [198, 20, 0, 0],
            [198, 51, 100, 127],
            [198, 51, 100, 248],
        ];
        for other in others {
            let error = publics.check(&set(&[fixed[0], other])).unwrap_err().to_string();
            assert!(error.contains(&Ipv4Addr::from(other).to_string()), "{error}");
        }
        let text = "[elastic_address.e]\npublic = \"192.0.2.8\"\n";
        let file = srd_vpc_file::parse(text, std::path::Path::new("a.toml")).unwrap();
        publics.add_of(&file).unwrap();
        publics.check(&set(&[[192, 0, 2, 7], [192, 0, 2, 8]])).unwrap();
    }

    #[test]
    fn files_name_so_many_addresses_and_no_more() {
        let most = u32::try_from(NAMED_ADDRESSES_MAX).unwrap();
        let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        let named = |count: u32| (first..first + count).map(Ipv4Addr::from).collect();
        let mut publics = Publics::new(&named(most)).unwrap();
        // Addresses of the blocks, and those that were named before, do not count.
        publics.add(&set(&[[198, 18, 0, 1], [10, 0, 0, 0]])).unwrap();
        assert!(publics.add(&set(&[[192, 0, 2, 7]])).is_err());
        assert!(publics.check(&set(&[[192, 0, 2, 7]])).is_err());
        assert!(Publics::new(&named(most + 1)).is_err());
    }
}
