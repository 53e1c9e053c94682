//! Counters, under the names that EFA's driver gives them (`hw_counters`); a counter that the
//! driver lacks has a name of ours.

use srd_proto::Stats;

/// Counts of operations and refusals of a device, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages sent with success.
    pub send_wrs: u64,
    /// Their bytes.
    pub send_bytes: u64,
    /// Messages received.
    pub recv_wrs: u64,
    /// Their bytes.
    pub recv_bytes: u64,
    /// Reads that succeeded.
    pub rdma_read_wrs: u64,
    /// Their bytes.
    pub rdma_read_bytes: u64,
    /// Reads that failed.
    pub rdma_read_wr_err: u64,
    /// Bytes that peers read here.
    pub rdma_read_resp_bytes: u64,
    /// Writes that succeeded.
    pub rdma_write_wrs: u64,
    /// Their bytes.
    pub rdma_write_bytes: u64,
    /// Writes that failed.
    pub rdma_write_wr_err: u64,
    /// Bytes that peers wrote here.
    pub rdma_write_recv_bytes: u64,
    /// Refused: for a queue pair that is not there, in no state to receive, or of the other type.
    pub bad_qpn: u64,
    /// Refused: with another Q key than the queue pair's.
    pub bad_qkey: u64,
    /// Refused: opaque bits or headers that no sender writes.
    pub malformed: u64,
    /// Refused: a remote key, range or right.
    pub bad_address: u64,
    /// Refused: RDMA from a peer without address handle.
    pub unknown_peer: u64,
    /// Refused: no receive request was posted, or the completion queue had no free entry.
    pub rnr: u64,
    /// Refused: a message larger than its receive request.
    pub bad_length: u64,
    /// Refused: part of a transfer that is not under way.
    pub no_transfer: u64,
    /// Peers' writes that were forgotten: given up by the peer, silent, or their peer was lost.
    pub writes_forgotten: u64,
}

impl Counters {
    /// Everything that the driver shows, by its name: the device's and the transport's.
    pub fn hw_counters(&self, stats: &Stats) -> [(&'static str, u64); 22] {
        [
            ("tx_bytes", stats.tx_bytes),
            ("tx_pkts", stats.tx_pkts),
            ("rx_bytes", stats.rx_bytes),
            ("rx_pkts", stats.rx_pkts),
            ("rx_drops", stats.rx_drops),
            ("send_bytes", self.send_bytes),
            ("send_wrs", self.send_wrs),
            ("recv_bytes", self.recv_bytes),
            ("recv_wrs", self.recv_wrs),
            ("rdma_read_wrs", self.rdma_read_wrs),
            ("rdma_read_bytes", self.rdma_read_bytes),
            ("rdma_read_wr_err", self.rdma_read_wr_err),
            ("rdma_read_resp_bytes", self.rdma_read_resp_bytes),
            ("rdma_write_wrs", self.rdma_write_wrs),
            ("rdma_write_bytes", self.rdma_write_bytes),
            ("rdma_write_wr_err", self.rdma_write_wr_err),
            ("rdma_write_recv_bytes", self.rdma_write_recv_bytes),
            ("retrans_bytes", stats.retrans_bytes),
            ("retrans_pkts", stats.retrans_pkts),
            ("retrans_timeout_events", stats.retrans_timeout_events),
            ("unresponsive_remote_events", stats.unresponsive_remote_events),
            ("impaired_remote_conn_events", stats.impaired_remote_conn_events),
        ]
    }
}
