use super::*;

struct Rig {
    receiver: Receiver,
    acks: VecDeque<TcpSegment>,
    now: Instant,
}

impl Rig {
    fn new(config: &TcpConfig) -> Self {
        let first = TcpSegment { flow: 7, ..TcpSegment::default() };
        let receiver = Receiver::new(config.into(), &first);
        Self { receiver, acks: VecDeque::new(), now: Instant::ZERO }
    }

    // Receives segment number `k`, with 1000 bytes, a microsecond after the previous segment.
    fn data(&mut self, k: u64, flags: u8, marked: bool) -> ByteRange {
        self.now += Duration::from_micros(1);
        let segment = TcpSegment {
            flow: 7,
            seq: k * 1000,
            payload_bytes: 1000,
            flags,
            timestamp_ns: self.now.as_nanos(),
            ..TcpSegment::default()
        };
        self.receiver.on_segment(self.now, &segment, marked, &mut self.acks)
    }

    fn plain(&mut self, k: u64) -> ByteRange {
        self.data(k, 0, false)
    }

    fn ack(&mut self) -> TcpSegment {
        self.acks.pop_front().expect("an acknowledgement")
    }
}

fn config() -> TcpConfig {
    TcpConfig { mtu_bytes: 1052, ack_quick: 0, ..TcpConfig::default() }
}

fn blocks(segment: &TcpSegment) -> Vec<(u64, u64)> {
    segment.sack_blocks().map(|block| (block.start / 1000, block.end / 1000)).collect()
}

#[test]
fn every_second_segment_is_acknowledged_and_the_odd_one_after_40_ms() {
    let mut rig = Rig::new(&config());
    rig.plain(0);
    assert!(rig.acks.is_empty());
    rig.plain(1);
    assert_eq!(rig.ack().ack, 2000);
    assert_eq!(rig.receiver.deadline(), None);
    rig.plain(2);
    // The deadline is 10 ticks of 4 ms, plus the next tick.
    assert_eq!(rig.receiver.deadline(), Some(Instant::from_nanos(44_000_000)));
    assert_eq!(rig.receiver.on_timer(Instant::from_nanos(44_000_000)).ack, 3000);
    assert_eq!(rig.receiver.deadline(), None);
}

#[test]
fn first_sixteen_are_acknowledged_at_once_and_so_is_a_pushed_one() {
    let mut rig = Rig::new(&TcpConfig { ack_quick: 16, ..config() });
    for k in 0..16 {
        rig.plain(k);
        assert_eq!(rig.ack().ack, (k + 1) * 1000);
    }
    rig.plain(16);
    assert!(rig.acks.is_empty());
    rig.plain(17);
    rig.ack();
    rig.data(18, FLAG_PSH, false);
    assert_eq!(rig.ack().ack, 19_000);
}

#[test]
fn sack_blocks_come_latest_first_and_three_at_most() {
    let mut rig = Rig::new(&config());
    assert_eq!(rig.plain(1), ByteRange { start: 0, end: 0 });
    assert_eq!(blocks(&rig.ack()), [(1, 2)]);
    rig.plain(3);
    assert_eq!(blocks(&rig.ack()), [(3, 4), (1, 2)]);
    rig.plain(5);
    rig.ack();
    rig.plain(7);
    assert_eq!(blocks(&rig.ack()), [(7, 8), (5, 6), (3, 4)]);
    // Segment 4 fills the gap between 3 and 5. The merged block becomes the first.
    rig.plain(4);
    assert_eq!(blocks(&rig.ack()), [(3, 6), (7, 8), (1, 2)]);
    // Segment 0 fills the gap before 1. Segments 0 and 1 are delivered, and their block is removed.
    assert_eq!(rig.plain(0), ByteRange { start: 0, end: 2000 });
    let ack = rig.ack();
    assert_eq!((ack.ack, blocks(&ack)), (2000, vec![(3, 6), (7, 8)]));
    assert_eq!(rig.plain(2), ByteRange { start: 2000, end: 6000 });
    rig.ack();
    rig.plain(6);
    let ack = rig.ack();
    assert_eq!((ack.ack, blocks(&ack).len()), (8000, 0), "the last gap's end is told at once");
}

#[test]
fn duplicates_are_reported_once_in_the_first_block() {
    let mut rig = Rig::new(&config());
    rig.plain(0);
    rig.plain(1);
    rig.ack();
    rig.plain(0);
    let ack = rig.ack();
    assert!(ack.has(FLAG_DSACK));
    assert_eq!((ack.ack, blocks(&ack)), (2000, vec![(0, 1)]));
    rig.plain(5);
    assert!(!rig.ack().has(FLAG_DSACK));
    rig.plain(5);
    let ack = rig.ack();
    assert!(ack.has(FLAG_DSACK));
    assert_eq!(blocks(&ack), [(5, 6), (5, 6)]);
}

#[test]
fn timestamp_echo_is_of_the_segment_that_the_acknowledgement_waits_for() {
    let mut rig = Rig::new(&config());
    rig.plain(0); // at 1 us
    rig.plain(1); // at 2 us
    assert_eq!(rig.ack().timestamp_echo_ns, 1000, "delayed: the earliest unacknowledged");
    rig.plain(3);
    assert_eq!(rig.ack().timestamp_echo_ns, 1000, "out of order: unchanged");
    rig.plain(2);
    assert_eq!(rig.ack().timestamp_echo_ns, 4000, "the gap's filler");
}

#[test]
fn dctcp_echoes_every_change_of_mark_exactly() {
    let mut rig = Rig::new(&TcpConfig { congestion: Congestion::Dctcp, ecn: true, ..config() });
    rig.plain(0);
    rig.data(1, 0, true);
    let (first, second) = (rig.ack(), rig.ack());
    assert_eq!((first.ack, first.has(FLAG_ECE)), (1000, false), "what was unmarked goes first");
    assert_eq!((second.ack, second.has(FLAG_ECE)), (2000, true));
    rig.data(2, 0, true);
    assert!(rig.acks.is_empty());
    rig.data(3, 0, true);
    assert!(rig.ack().has(FLAG_ECE));
    rig.plain(4);
    let ack = rig.ack();
    assert_eq!((ack.ack, ack.has(FLAG_ECE)), (5000, false));
    assert!(rig.acks.is_empty(), "nothing waited");
}

#[test]
fn classic_echo_lasts_until_the_sender_has_reduced() {
    let mut rig = Rig::new(&TcpConfig { ecn: true, ..config() });
    let mut echoes = Vec::new();
    for (k, marked, flags) in [
        (0, true, 0),
        (1, false, 0),
        (2, false, 0),
        (3, false, FLAG_CWR),
        (4, false, 0),
        (5, true, FLAG_CWR),
    ] {
        rig.data(k, flags, marked);
        echoes.extend(rig.acks.drain(..).map(|ack| ack.has(FLAG_ECE)));
    }
    assert_eq!(echoes, [true, false, true]);
}

#[test]
fn stream_is_complete_when_everything_to_the_pushed_end_has_arrived() {
    let mut rig = Rig::new(&config());
    rig.plain(0);
    rig.data(2, FLAG_PSH, false);
    assert!(!rig.receiver.is_complete());
    rig.plain(1);
    assert!(rig.receiver.is_complete());
    let duplicate = TcpSegment { seq: 1000, payload_bytes: 1000, ..TcpSegment::default() };
    let answer = answer_duplicate(3000, &duplicate);
    assert_eq!((answer.ack, blocks(&answer)), (3000, vec![(1, 2)]));
}
