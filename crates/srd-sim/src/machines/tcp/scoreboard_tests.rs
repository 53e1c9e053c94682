use super::*;

fn board(segments: u32) -> Scoreboard {
    let mut board = Scoreboard::default();
    for k in 0..segments {
        board.push(u64::from(k) * 1000, 1000, at(u64::from(k)));
    }
    board
}

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

fn blocks<const N: usize>(ranges: [(u64, u64); N]) -> impl Iterator<Item = ByteRange> {
    ranges.into_iter().map(|(start, end)| ByteRange { start, end })
}

fn sack<const N: usize>(board: &mut Scoreboard, ranges: [(u64, u64); N]) -> Progress {
    let mut progress = Progress::default();
    board.on_sack(blocks(ranges), u64::MAX, &mut progress, |_| {});
    progress
}

fn ack(board: &mut Scoreboard, ack: u64) -> Progress {
    let mut progress = Progress::default();
    board.on_ack(ack, u64::MAX, &mut progress, |_| {});
    progress
}

fn time_order(board: &Scoreboard) -> Vec<u32> {
    let mut order = Vec::new();
    let mut cursor = board.oldest_sent();
    while let Some(number) = cursor {
        order.push(number);
        cursor = board.next_sent(number);
    }
    order
}

#[test]
fn sack_blocks_are_counted_once_across_acknowledgements() {
    let mut board = board(10);
    let progress = sack(&mut board, [(2000, 4000)]);
    assert_eq!((progress.sacked, progress.delivered), (2, 2));
    assert_eq!(progress.first_sacked_at, Some(at(2)));
    let progress = sack(&mut board, [(2000, 6000), (8000, 9000)]);
    assert_eq!(progress.sacked, 3);
    assert!(!progress.reordered);
    assert_eq!(sack(&mut board, [(2000, 6000), (8000, 9000)]).sacked, 0);
    assert_eq!(board.sacked(), 5);
    assert_eq!(board.in_flight(), 5);
    // Segments that were SACKed before do not count as delivered a second time.
    let progress = ack(&mut board, 6000);
    assert_eq!((progress.acked, progress.delivered), (6, 2));
    assert_eq!(board.sacked(), 1);
    assert_eq!(board.outstanding(), 4);
}

#[test]
fn partly_covered_segment_is_not_sacked() {
    let mut board = board(4);
    assert_eq!(sack(&mut board, [(1500, 2999)]).sacked, 0);
    assert_eq!(sack(&mut board, [(500, 3000)]).sacked, 2);
}

#[test]
fn segment_sent_once_that_arrives_late_is_reordering() {
    let mut board = board(4);
    sack(&mut board, [(2000, 3000)]);
    assert!(sack(&mut board, [(1000, 3000)]).reordered);
}

#[test]
fn lost_and_resent_segments_are_counted_as_linux_counts_them() {
    let mut board = board(6);
    sack(&mut board, [(2000, 6000)]);
    assert!(board.mark_lost(0));
    assert!(board.mark_lost(1));
    assert!(!board.mark_lost(1), "no news");
    assert_eq!((board.lost(), board.in_flight()), (2, 0));
    assert_eq!(board.next_lost(), Some(0));
    board.resend(0, at(100));
    assert_eq!(board.next_lost(), Some(1));
    board.resend(1, at(101));
    assert_eq!(board.next_lost(), None);
    assert_eq!((board.lost(), board.resent(), board.in_flight()), (2, 2, 2));
    // The first retransmission of segment 0 is lost.
    assert!(board.mark_lost(0));
    assert_eq!(board.in_flight(), 1);
    assert_eq!(board.next_lost(), Some(0));
    board.resend(0, at(200));
    let progress = ack(&mut board, 6000);
    assert_eq!((progress.acked, progress.delivered), (6, 2));
    assert_eq!(progress.first_acked_at, None, "Karn: a resent segment gives no sample");
    assert_eq!((board.lost(), board.resent(), board.sacked()), (0, 0, 0));
    assert_eq!(board.oldest_sent(), None);
}

#[test]
fn probe_of_the_tail_does_not_hide_a_lost_segment() {
    let mut board = board(3);
    board.resend(2, at(50));
    assert_eq!((board.in_flight(), board.next_lost()), (4, None));
    board.mark_lost(0);
    assert_eq!(board.next_lost(), Some(0));
}

#[test]
fn time_list_is_in_order_of_transmission() {
    let mut board = board(5);
    assert_eq!(time_order(&board), [0, 1, 2, 3, 4]);
    sack(&mut board, [(2000, 3000)]);
    board.mark_lost(0);
    assert_eq!(time_order(&board), [1, 3, 4]);
    board.resend(0, at(10));
    board.push(5000, 1000, at(11));
    assert_eq!(time_order(&board), [1, 3, 4, 0, 5]);
    ack(&mut board, 2000);
    assert_eq!(time_order(&board), [3, 4, 5]);
    board.mark_lost(3);
    board.forget_losses();
    assert_eq!((board.lost(), board.in_flight()), (0, 3));
    assert_eq!(time_order(&board), [4, 5, 3]);
}

#[test]
fn ring_grows_to_the_window_and_wraps() {
    let mut board = Scoreboard::default();
    let (mut seq, mut acked) = (0, 0);
    for round in 1..200_u64 {
        for _ in 0..round % 90 {
            board.push(seq, 1000, at(seq));
            seq += 1000;
        }
        acked = seq.min(acked + 1000 * (round % 83));
        ack(&mut board, acked);
        assert_eq!(u64::from(board.outstanding()) * 1000, seq - acked);
        if let Some(head) = board.head() {
            assert_eq!(head.seq, acked);
        }
    }
    assert!(time_order(&board).is_sorted());
}
