//! Counters, with the names of EFA's driver (`hw_counters`). A counter that the driver does not
//! have gets a name of this crate.

use srd_proto::Stats;

/// Counts of operations and refusals of a device, since the device was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that were sent successfully.
    pub send_wrs: u64,
    /// Bytes of the messages that were sent successfully.
    pub send_bytes: u64,
    /// Messages that were received.
    pub recv_wrs: u64,
    /// Bytes of the messages that were received.
    pub recv_bytes: u64,
    /// Reads of peers' memory that succeeded.
    pub rdma_read_wrs: u64,
    /// Bytes of the reads that succeeded.
    pub rdma_read_bytes: u64,
    /// Reads of peers' memory that failed.
    pub rdma_read_wr_err: u64,
    /// Bytes that peers read from this device.
    pub rdma_read_resp_bytes: u64,
    /// Writes to peers' memory that succeeded.
    pub rdma_write_wrs: u64,
    /// Bytes of the writes that succeeded.
    pub rdma_write_bytes: u64,
    /// Writes to peers' memory that failed.
    pub rdma_write_wr_err: u64,
    /// Bytes that peers wrote to this device.
    pub rdma_write_recv_bytes: u64,
    /// Datagrams refused because their destination queue pair does not exist, cannot receive in its
    /// state, or has the wrong type (UD for a reliable datagram, SRD for an unreliable datagram).
    pub bad_qpn: u64,
    /// Datagrams refused because their Q key differs from the Q key of the queue pair.
    pub bad_qkey: u64,
    /// Datagrams refused because their opaque bits or their RDMA header are invalid.
    pub malformed: u64,
    /// Datagrams refused because of their remote key, range or access right.
    pub bad_address: u64,
    /// RDMA datagrams refused because this device has no address handle for their sender.
    pub unknown_peer: u64,
    /// Datagrams refused because no receive request was posted, or the completion queue had no free
    /// entry.
    pub rnr: u64,
    /// Messages refused because they were larger than their receive request.
    pub bad_length: u64,
    /// Datagrams refused because their transfer is not in progress.
    pub no_transfer: u64,
    /// Peers' writes that were removed: because the peer gave up the write, sent nothing for too
    /// long, or was lost.
    pub writes_forgotten: u64,
}

impl Counters {
    /// Returns the name and the value of every counter that EFA's driver shows: counters of this
    /// device, and the counters of the transport in `stats`. The pattern names every counter of the
    /// transport, so that a new one is returned, or left out on purpose.
    pub fn hw_counters(&self, stats: &Stats) -> [(&'static str, u64); 22] {
        let &Stats {
            tx_bytes,
            tx_pkts,
            rx_bytes,
            rx_pkts,
            rx_drops,
            retrans_bytes,
            retrans_pkts,
            retrans_timeout_events,
            unresponsive_remote_events,
            impaired_remote_conn_events,
            // Counters of the device have these names.
            send_bytes: _,
            send_wrs: _,
            recv_bytes: _,
            recv_wrs: _,
            // EFA's driver does not have these counters.
            spurious_losses: _,
            rx_duplicates: _,
            rx_rnr: _,
            data_pkts: _,
            unreliable_tx_pkts: _,
            unreliable_rx_pkts: _,
            ack_pkts: _,
            probe_pkts: _,
            challenge_pkts: _,
            address_moves: _,
            clock_clamped: _,
            own_pauses: _,
            unreachable_hints: _,
            drops: _,
        } = stats;
        [
            ("tx_bytes", tx_bytes),
            ("tx_pkts", tx_pkts),
            ("rx_bytes", rx_bytes),
            ("rx_pkts", rx_pkts),
            ("rx_drops", rx_drops),
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
            ("retrans_bytes", retrans_bytes),
            ("retrans_pkts", retrans_pkts),
            ("retrans_timeout_events", retrans_timeout_events),
            ("unresponsive_remote_events", unresponsive_remote_events),
            ("impaired_remote_conn_events", impaired_remote_conn_events),
        ]
    }
}
