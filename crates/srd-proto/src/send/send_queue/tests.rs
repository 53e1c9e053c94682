use super::*;

fn datagram(qpn: u16, class: Class, bytes: usize) -> Datagram {
    Datagram {
        src_qpn: Qpn(qpn),
        dst_qpn: Qpn(0),
        imm: 0,
        payload: Bytes::from(alloc::vec![0; bytes]),
        class,
        user: u64::from(qpn),
    }
}

fn send_next(q: &mut SendQueue, psn: u64) -> u64 {
    let slot = q.peek().unwrap();
    let (user, bytes) = (q.held(slot).user, q.held(slot).payload.len());
    q.take(slot, psn, bytes);
    user
}

fn push(q: &mut SendQueue, d: Datagram) {
    q.push(DatagramId(0), d, 10_000, 16).unwrap();
}

#[test]
fn a_datagram_that_travels_on_after_its_completion_refers_to_nothing_of_the_applications() {
    static GIVEN: [u8; 3] = [1, 2, 3];
    let mut q = SendQueue::default();
    push(&mut q, Datagram { payload: Bytes::from_static(&GIVEN), ..datagram(1, Class::Bulk, 0) });
    let slot = q.peek().unwrap();
    send_next(&mut q, 0);
    assert_eq!(q.held(slot).payload.as_ptr(), GIVEN.as_ptr());
    assert!(q.orphan(slot).is_some() && q.orphan(slot).is_none());
    assert_ne!(q.held(slot).payload.as_ptr(), GIVEN.as_ptr());
    assert_eq!(&q.held(slot).payload[..], GIVEN);
}

#[test]
fn flows_share_bytes_equally_whatever_their_datagram_sizes() {
    let mut q = SendQueue::default();
    for _ in 0..900 {
        push(&mut q, datagram(1, Class::Bulk, 1000));
    }
    for _ in 0..100 {
        push(&mut q, datagram(2, Class::Bulk, 9000));
    }
    let mut bytes = [0usize; 3];
    for psn in 0..500 {
        let user = usize::try_from(send_next(&mut q, psn)).unwrap();
        bytes[user] += if user == 1 { 1000 } else { 9000 };
    }
    let difference = bytes[1].abs_diff(bytes[2]);
    assert!(difference <= 18_000, "{bytes:?}");
}

#[test]
fn low_latency_goes_first_but_leaves_bulk_three_quarters() {
    let mut q = SendQueue::default();
    for _ in 0..4000 {
        push(&mut q, datagram(1, Class::Bulk, 1000));
        push(&mut q, datagram(2, Class::LowLatency, 1000));
    }
    assert_eq!(send_next(&mut q, 0), 2);
    let low = (1..3000).filter(|&psn| send_next(&mut q, psn) == 2).count();
    assert!((700..=800).contains(&low), "{low}");
}

#[test]
fn a_queue_pairs_bulk_does_not_hold_up_what_is_urgent_of_its_own() {
    let mut q = SendQueue::default();
    for _ in 0..2 {
        push(&mut q, datagram(1, Class::Bulk, 9000));
    }
    push(&mut q, Datagram { user: 7, ..datagram(1, Class::LowLatency, 50) });
    assert_eq!(send_next(&mut q, 0), 7);
    assert_eq!(send_next(&mut q, 1), 1);
}

#[test]
fn retransmissions_go_before_everything() {
    let mut q = SendQueue::default();
    push(&mut q, datagram(1, Class::Bulk, 10));
    push(&mut q, datagram(1, Class::LowLatency, 10));
    let slot = q.peek().unwrap();
    q.take(slot, 0, 10);
    q.requeue(slot);
    assert_eq!(q.peek(), Some(slot));
    q.take(slot, 1, 10);
    assert_eq!(q.held(slot).first_psn(), Some(0));
    assert_eq!(q.held(slot).last_psn, 1);
}

#[test]
fn a_full_queue_refuses_and_says_when_there_is_room() {
    let mut q = SendQueue::default();
    for _ in 0..4 {
        q.push(DatagramId(0), datagram(1, Class::Bulk, 1), 4, 1).unwrap();
    }
    assert_eq!(q.push(DatagramId(0), datagram(1, Class::Bulk, 1), 4, 1), Err(SendError::QueueFull));
    assert!(!q.take_writable(4));
    assert!(q.finish(0).is_some());
    assert!(q.finish(0).is_none());
    assert!(q.take_writable(4));
    assert!(!q.take_writable(4));
    assert_eq!(
        q.push(DatagramId(0), datagram(2, Class::Bulk, 1), 4, 1),
        Err(SendError::TooManyFlows)
    );
}

/// Each call that ends one datagram takes constant time. This test took half an hour when each call
/// searched the datagrams of its flow, or the ring of flows.
#[test]
fn regression_ending_all_of_the_longest_queue_does_not_hold_up_the_endpoint() {
    const DATAGRAMS: u32 = 1 << 20;
    const FLOWS: u32 = 1 << 16;
    for spread in [1, FLOWS / 2] {
        let mut q = SendQueue::default();
        for n in 0..DATAGRAMS {
            let qpn = u16::try_from(n % spread).unwrap();
            q.push(DatagramId(0), datagram(qpn, Class::Bulk, 1), DATAGRAMS, FLOWS).unwrap();
        }
        assert_eq!(q.unsent_bytes(), DATAGRAMS.into());
        // The datagrams end in reverse order, in which a search from the front of the list takes
        // longest.
        assert_eq!(q.slots(None).into_iter().rev().filter_map(|s| q.finish(s)).count(), 1 << 20);
        assert_eq!((q.len(), q.unsent_bytes(), q.peek()), (0, 0, None));
    }
}

#[test]
fn regression_the_retransmissions_of_a_whole_window_end_one_by_one() {
    const DATAGRAMS: u32 = 1 << 19;
    let mut q = SendQueue::default();
    for psn in 0..DATAGRAMS {
        q.push(DatagramId(0), datagram(1, Class::Bulk, 1), DATAGRAMS, 1).unwrap();
        let slot = q.peek().unwrap();
        q.take(slot, psn.into(), 1);
    }
    (0..DATAGRAMS).for_each(|slot| q.requeue(slot));
    (0..DATAGRAMS / 2).for_each(|slot| q.renew(DATAGRAMS - 1 - slot));
    assert_eq!((0..DATAGRAMS).rev().filter_map(|slot| q.finish(slot)).count(), 1 << 19);
    assert!(!q.has_rnr() && q.peek().is_none());
}

#[test]
fn regression_with_all_flows_in_use_the_one_idle_for_longest_is_given_up() {
    const FLOWS: u16 = u16::MAX;
    let max = u32::from(FLOWS);
    let mut q = SendQueue::default();
    for qpn in 0..FLOWS {
        q.push(DatagramId(0), datagram(qpn, Class::Bulk, 1), 1 << 20, max).unwrap();
    }
    let class = Class::LowLatency;
    let refused = q.push(DatagramId(0), datagram(0, class, 1), 1 << 20, max);
    assert_eq!(refused, Err(SendError::TooManyFlows));
    // Only the last flow becomes empty. All flows, one after the other, take its entry.
    let last = u32::from(FLOWS - 1);
    assert!(q.finish(last).is_some());
    for qpn in 0..FLOWS {
        q.push(DatagramId(0), datagram(qpn, class, 1), 1 << 20, max).unwrap();
        assert!(q.finish(last).is_some());
    }
    assert_eq!(q.len(), usize::from(FLOWS) - 1);
}

#[test]
fn a_datagram_keeps_its_class_when_its_flow_has_gone_to_another() {
    let mut q = SendQueue::default();
    q.push(DatagramId(0), datagram(1, Class::LowLatency, 10), 8, 1).unwrap();
    let slot = q.peek().unwrap();
    q.take(slot, 0, 10);
    q.push(DatagramId(1), datagram(2, Class::Bulk, 10), 8, 1).unwrap();
    assert_eq!(q.held(slot).class, Class::LowLatency);
}
