//! Memory that a node registers for peers, and the requests that use it.

use super::*;

pub(super) const KEY: u64 = 0x1234_5678_9abc_def0;
/// Offset of node 1's shared memory.
pub(super) const RAM: usize = RAM_BYTES / 2;
/// Address that peers use for node 1's shared memory.
pub(super) const BASE: u64 = 0x7000_0000;
pub(super) const SIZE: u64 = 1 << 20;

pub(super) fn share(net: &mut Net, node: usize, access: Access) {
    let shared = Shared { region: 1, addr: BASE, length: SIZE, rkey: KEY, access };
    net.nodes[node].rdm.share(shared).unwrap();
}

pub(super) fn all() -> Access {
    Access { local_write: false, remote_write: true, remote_read: true }
}

pub(super) fn remote(offset: u64, length: u64) -> RmaIov {
    RmaIov { addr: BASE + offset, length, rkey: KEY }
}

pub(super) fn rma<'a>(to: Peer, read: bool, local: &'a [Iov], remote: &'a [RmaIov]) -> Rma<'a> {
    let until = Until::Transmitted;
    Rma { to, read, local, remote, data: None, context: 1, until, signaled: true }
}

pub(super) fn go(net: &mut Net, rma: Rma<'_>) -> Result<(), Refused> {
    net.on(0, |rdm, world| rdm.rma(world, rma))
}

pub(super) fn there(net: &Net, node: usize, offset: u64, length: u64) -> &[u8] {
    net.bytes(node, RAM as u64 + offset, length)
}
