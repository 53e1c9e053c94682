//! The plugin, called as NCCL calls it, on loopback: order, tags, groups, and what goes wrong.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls as C does

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use nccl_net_srd::abi::NcclResult;
use support::{Plugin, Request, connected};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(7)) & 0xff;
    (0..bytes).map(|at| u8::try_from(byte(at)).unwrap()).collect()
}

/// A communicator on loopback. Peers that fall silent are given up soon.
fn plugin() -> Plugin {
    // SAFETY: every test sets the same, and nothing but the plugin reads it.
    unsafe {
        std::env::set_var("SRD_NCCL_IFACE", "lo");
        std::env::set_var("SRD_NCCL_PEER_TIMEOUT_MS", "1000");
        std::env::set_var("SRD_NCCL_ANSWER_TIMEOUT_MS", "1000");
    }
    Plugin::load().unwrap()
}

/// Sends, again if there is no room.
fn send(from: &Plugin, sender: *mut c_void, data: &[u8], tag: i32) -> Request {
    let begin = Instant::now();
    loop {
        // SAFETY: the tests keep what they send until it has ended.
        let request = unsafe { from.isend(sender, data.as_ptr(), data.len(), tag) }.unwrap();
        if !request.is_null() {
            return request;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

/// Receives a group: rooms with their tags.
fn receive(at: &Plugin, receiver: *mut c_void, rooms: &mut [(Vec<u8>, i32)]) -> Request {
    let rooms: Vec<_> = rooms.iter_mut().map(|(r, tag)| (r.as_mut_ptr(), r.len(), *tag)).collect();
    // SAFETY: the tests keep rooms until what comes has ended.
    let request = unsafe { at.irecv(receiver, &rooms) }.unwrap();
    assert!(!request.is_null());
    request
}

/// Tests a request of one plugin until it has ended, while the other works, too.
fn end(plugin: &Plugin, request: Request) -> Result<[i32; 8], NcclResult> {
    let begin = Instant::now();
    loop {
        if let Some(sizes) = plugin.test(request)? {
            return Ok(sizes);
        }
        assert!(begin.elapsed() < PATIENCE, "a request has not ended");
    }
}

/// Sends until the plugin says that the other end is closed.
fn is_refused(from: &Plugin, sender: *mut c_void, data: &[u8]) {
    let begin = Instant::now();
    // SAFETY: the tests keep the data until the connection is closed.
    while unsafe { from.isend(sender, data.as_ptr(), data.len(), 0) }
        != Err(NcclResult::RemoteError)
    {
        assert!(begin.elapsed() < PATIENCE, "sends go on");
    }
}

#[test]
fn messages_of_all_sizes_go_through_into_rooms_that_may_be_larger() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    for bytes in [0, 1, 8, 9000, 70_000, 1 << 20, 20 << 20] {
        let data = pattern(bytes, bytes);
        let mut rooms = [(vec![0; bytes + 100], 5)];
        let expected = receive(&right, receiver, &mut rooms);
        let sent = send(&left, sender, &data, 5);
        let size = i32::try_from(bytes).unwrap();
        assert_eq!(end(&right, expected).unwrap()[0], size);
        assert_eq!(end(&left, sent).unwrap()[0], size);
        assert!(rooms[0].0[..bytes] == data[..], "{bytes} bytes");
        assert!(rooms[0].0[bytes..].iter().all(|byte| *byte == 0));
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
    left.finalize().unwrap();
    right.finalize().unwrap();
}

#[test]
fn messages_with_one_tag_keep_their_order_whatever_their_size_and_whoever_is_first() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    for early in [true, false] {
        let sizes = [1, 300_000, 7, 70_000, 9000, 65_536, 0, 1 << 20];
        let data: Vec<_> = sizes.iter().enumerate().map(|(at, s)| pattern(at, *s)).collect();
        let mut rooms: Vec<_> = sizes.iter().map(|_| [(vec![0; 1 << 20], 3)]).collect();
        let post = |rooms: &mut Vec<[(Vec<u8>, i32); 1]>| -> Vec<Request> {
            rooms.iter_mut().map(|room| receive(&right, receiver, room)).collect()
        };
        let first = if early { post(&mut rooms) } else { Vec::new() };
        let sent: Vec<_> = data.iter().map(|data| send(&left, sender, data, 3)).collect();
        let expected = if early { first } else { post(&mut rooms) };
        for (request, (room, data)) in expected.into_iter().zip(rooms.iter().zip(&data)) {
            assert_eq!(end(&right, request).unwrap()[0], i32::try_from(data.len()).unwrap());
            assert!(room[0].0[..data.len()] == data[..]);
        }
        for request in sent {
            end(&left, request).unwrap();
        }
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_group_takes_each_message_by_its_tag_and_tells_all_sizes() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let tag = |at: usize| i32::try_from(at).unwrap() - 3; // negative ones are tags, too
    for round in 0..20 {
        let mut rooms: Vec<_> = (0..8).map(|at| (vec![0; 200_000], tag(at))).collect();
        let expected = receive(&right, receiver, &mut rooms);
        let data: Vec<_> = (0..8).map(|at| pattern(at, at * 20_000 + round)).collect();
        let mut sent = Vec::new();
        for at in [5, 2, 7, 0, 1, 6, 4] {
            sent.push(send(&left, sender, &data[at], tag(at)));
        }
        for request in sent.drain(..) {
            end(&left, request).unwrap();
        }
        assert_eq!(right.test(expected).unwrap(), None, "one of the group has not come");
        let last = send(&left, sender, &data[3], tag(3));
        let sizes = end(&right, expected).unwrap();
        end(&left, last).unwrap();
        for (at, (data, (room, _))) in data.iter().zip(&rooms).enumerate() {
            assert_eq!(sizes[at], i32::try_from(data.len()).unwrap());
            assert!(room[..data.len()] == data[..], "part {at}");
        }
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
}

#[test]
fn connections_between_the_same_two_do_not_mix_though_their_tags_are_alike() {
    let (left, right) = (plugin(), plugin());
    let connections: Vec<_> = (0..16).map(|_| connected(&left, &right)).collect();
    let data: Vec<_> = (0..16).map(|at| pattern(at, 5000)).collect();
    let sent: Vec<_> =
        connections.iter().zip(&data).map(|(c, data)| send(&left, c.0, data, 1)).collect();
    for (connection, data) in connections.iter().zip(&data).rev() {
        let mut rooms = [(vec![0; 5000], 1)];
        let expected = receive(&right, connection.1, &mut rooms);
        assert_eq!(end(&right, expected).unwrap()[0], 5000);
        assert!(rooms[0].0 == *data);
    }
    for request in sent {
        end(&left, request).unwrap();
    }
    for (sender, receiver) in connections {
        right.close_recv(receiver).unwrap();
        left.close_send(sender).unwrap();
    }
}

#[test]
fn threads_use_their_own_connections_of_one_communicator_at_once() {
    let (left, right) = (plugin(), plugin());
    let connections: Vec<(usize, usize)> = (0..4)
        .map(|_| connected(&left, &right))
        .map(|(sender, receiver)| (sender.expose_provenance(), receiver.expose_provenance()))
        .collect();
    std::thread::scope(|scope| {
        for (at, (sender, receiver)) in connections.into_iter().enumerate() {
            let (left, right) = (&left, &right);
            scope.spawn(move || {
                for round in 0..100 {
                    let data = pattern(at + round, round * 997);
                    let sent = send(left, std::ptr::with_exposed_provenance_mut(sender), &data, 0);
                    end(left, sent).unwrap();
                }
                left.close_send(std::ptr::with_exposed_provenance_mut(sender)).unwrap();
            });
            scope.spawn(move || {
                let receiver = std::ptr::with_exposed_provenance_mut(receiver);
                for round in 0..100 {
                    let mut rooms = [(vec![0; 100_000], 0)];
                    let expected = receive(right, receiver, &mut rooms);
                    let size = end(right, expected).unwrap()[0];
                    let data = pattern(at + round, round * 997);
                    assert_eq!(size, i32::try_from(data.len()).unwrap());
                    assert!(rooms[0].0[..data.len()] == data[..]);
                }
                right.close_recv(receiver).unwrap();
            });
        }
    });
}

#[test]
fn a_connection_holds_as_many_requests_as_nccl_may_have_and_asks_to_try_again_beyond() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let mut rooms: Vec<Vec<_>> =
        (0..33).map(|_| (0..8).map(|t| (vec![0; 100], t)).collect()).collect();
    let expected: Vec<_> =
        rooms.iter_mut().take(32).map(|group| receive(&right, receiver, group)).collect();
    let one_more = [(rooms[32][0].0.as_mut_ptr(), 100, 0)];
    // SAFETY: it is not taken.
    assert!(unsafe { right.irecv(receiver, &one_more) }.unwrap().is_null());
    let data = pattern(1, 100);
    let sent: Vec<_> = (0..256).map(|at| send(&left, sender, &data, at % 8)).collect();
    // SAFETY: it is not taken, or ends before the end of the test.
    assert!(unsafe { left.isend(sender, data.as_ptr(), 100, 0) }.unwrap().is_null());
    for request in expected {
        assert_eq!(end(&right, request).unwrap(), [100; 8]);
    }
    for request in sent {
        end(&left, request).unwrap();
    }
    let again = receive(&right, receiver, &mut rooms[32]);
    let sent: Vec<_> = (0..8).map(|tag| send(&left, sender, &data, tag)).collect();
    end(&right, again).unwrap();
    for request in sent {
        end(&left, request).unwrap();
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_an_error() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    for bytes in [1001, 500_000] {
        let data = pattern(1, bytes);
        let mut rooms = [(vec![0xee; 1001], 0)];
        let room = [(rooms[0].0.as_mut_ptr(), 1000, 0)];
        // SAFETY: the room outlives its request.
        let expected = unsafe { right.irecv(receiver, &room) }.unwrap();
        let sent = send(&left, sender, &data, 0);
        assert_eq!(end(&right, expected), Err(NcclResult::InvalidUsage));
        assert_eq!(rooms[0].0[1000], 0xee);
        let _ = end(&left, sent);
        rooms[0].0.clear();
    }
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_receive_fails_when_the_sender_closes_and_what_was_sent_before_still_arrives() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let data = pattern(1, 3000);
    let sent = send(&left, sender, &data, 0);
    end(&left, sent).unwrap();
    let mut other = [(vec![0; 10], 9)];
    let never = receive(&right, receiver, &mut other);
    left.close_send(sender).unwrap();
    assert_eq!(end(&right, never), Err(NcclResult::RemoteError));
    let mut rooms = [(vec![0; 3000], 0)];
    let expected = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, expected).unwrap()[0], 3000);
    assert!(rooms[0].0 == data);
    let late = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, late), Err(NcclResult::RemoteError));
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_send_fails_when_the_receiver_closes_and_other_connections_go_on() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let other = connected(&left, &right);
    let data = pattern(1, 5 << 20);
    let sent = send(&left, sender, &data, 0);
    right.close_recv(receiver).unwrap();
    // A receiver that throws it away has taken it.
    let sent = end(&left, sent);
    assert!(sent.is_ok() || sent == Err(NcclResult::RemoteError), "{sent:?}");
    is_refused(&left, sender, &data[..1]);
    left.close_send(sender).unwrap();
    let mut rooms = [(vec![0; 5 << 20], 0)];
    let expected = receive(&right, other.1, &mut rooms);
    let sent = send(&left, other.0, &data, 0);
    end(&right, expected).unwrap();
    end(&left, sent).unwrap();
    assert!(rooms[0].0 == data);
    left.close_send(other.0).unwrap();
    right.close_recv(other.1).unwrap();
}

/// As NCCL aborts: both ends are closed in the middle of transfers, and the buffers are used for
/// something else at once.
#[test]
fn closing_in_mid_transfer_neither_hangs_nor_touches_the_buffers_afterwards() {
    for sender_first in [true, false] {
        let (left, right) = (plugin(), plugin());
        let (sender, receiver) = connected(&left, &right);
        let data: Vec<_> = (0..8).map(|at| pattern(at, 30 << 20)).collect();
        let mut rooms: Vec<_> = (0..4).map(|_| [(vec![0; 30 << 20], 0)]).collect();
        let expected: Vec<_> =
            rooms.iter_mut().map(|room| receive(&right, receiver, room)).collect();
        let sent: Vec<_> = data.iter().map(|data| send(&left, sender, data, 0)).collect();
        for _ in 0..3 {
            let _ = (left.test(sent[0]).unwrap(), right.test(expected[0]).unwrap());
        }
        let begin = Instant::now();
        if sender_first {
            left.close_send(sender).unwrap();
            drop(data);
            right.close_recv(receiver).unwrap();
        } else {
            right.close_recv(receiver).unwrap();
        }
        for room in &mut rooms {
            room[0].0.fill(0xaa);
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(rooms.iter().all(|room| room[0].0.iter().all(|byte| *byte == 0xaa)));
        if !sender_first {
            left.close_send(sender).unwrap();
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        left.finalize().unwrap();
        right.finalize().unwrap();
    }
}

#[test]
fn what_waits_for_nobody_is_closed_at_once() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let other = connected(&right, &left);
    let mut rooms: Vec<Vec<_>> =
        (0..32).map(|_| (0..8).map(|t| (vec![0; 100], t)).collect()).collect();
    for group in &mut rooms {
        receive(&right, receiver, group);
    }
    right.close_recv(receiver).unwrap();
    left.close_send(sender).unwrap();
    // The endpoint was not given up for it.
    let mut room = [(vec![0; 100], 0)];
    let expected = receive(&left, other.1, &mut room);
    let data = pattern(1, 100);
    let sent = send(&right, other.0, &data, 0);
    assert_eq!(end(&left, expected).unwrap()[0], 100);
    end(&right, sent).unwrap();
}

/// Sends something and receives it.
fn works(left: &Plugin, right: &Plugin, (sender, receiver): (*mut c_void, *mut c_void)) {
    let data = pattern(1, 1 << 20);
    let mut rooms = [(vec![0; 1 << 20], 0)];
    let expected = receive(right, receiver, &mut rooms);
    let sent = send(left, sender, &data, 0);
    end(right, expected).unwrap();
    end(left, sent).unwrap();
    assert!(rooms[0].0 == data);
}

#[test]
fn a_send_that_nobody_received_is_given_up_and_other_connections_go_on() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let beside = connected(&left, &right);
    let mut data = pattern(1, 1 << 20);
    let sent = send(&left, sender, &data, 0);
    assert_eq!(left.test(sent).unwrap(), None);
    left.close_send(sender).unwrap();
    data.fill(0);
    works(&left, &right, beside);
    let mut rooms = [(vec![0; 1 << 20], 0)];
    let late = receive(&right, receiver, &mut rooms);
    assert_eq!(end(&right, late), Err(NcclResult::RemoteError));
    right.close_recv(receiver).unwrap();
}

#[test]
fn a_peer_that_cannot_answer_costs_the_endpoint_and_the_context_opens_another() {
    let (left, right, third) = (plugin(), plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let beside = connected(&left, &third);
    right.close_recv(receiver).unwrap();
    right.finalize().unwrap();
    // It does not know yet that nobody is there, and its bytes are on their way.
    let data = pattern(1, 5000);
    let sent = send(&left, sender, &data, 0);
    let begin = Instant::now();
    left.close_send(sender).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(left.test(sent).is_err());
    // SAFETY: it is refused.
    let late = unsafe { left.isend(beside.0, data.as_ptr(), 8, 0) };
    assert_eq!(late, Err(NcclResult::SystemError));
    works(&left, &third, connected(&left, &third));
}

#[test]
fn a_communicator_may_connect_to_itself() {
    let itself = plugin();
    let (sender, receiver) = connected(&itself, &itself);
    for bytes in [100, 1 << 20] {
        let data = pattern(3, bytes);
        let mut rooms = [(vec![0; bytes], 0)];
        let expected = receive(&itself, receiver, &mut rooms);
        let sent = send(&itself, sender, &data, 0);
        assert_eq!(end(&itself, expected).unwrap()[0], i32::try_from(bytes).unwrap());
        end(&itself, sent).unwrap();
        assert!(rooms[0].0 == data);
    }
    itself.close_send(sender).unwrap();
    itself.close_recv(receiver).unwrap();
}

#[test]
fn a_connection_nobody_answers_fails_and_can_be_tried_again() {
    let (left, right) = (plugin(), plugin());
    let (handle, listener) = right.listen().unwrap();
    // No such listener.
    let mut wrong = handle;
    wrong[27] ^= 0x55;
    let refused = try_connect(&left, &mut wrong, Some((&right, listener)));
    assert_eq!(refused, Err(NcclResult::RemoteError));
    // No such endpoint.
    let mut nobody = handle;
    nobody[10..12].copy_from_slice(&9_u16.to_be_bytes());
    assert_eq!(try_connect(&left, &mut nobody, None), Err(NcclResult::RemoteError));
    // Another run at that address.
    let mut stale = handle;
    stale[16..24].copy_from_slice(&77_u64.to_be_bytes());
    assert_eq!(try_connect(&left, &mut stale, None), Err(NcclResult::RemoteError));
    let mut garbage = [0x5a; 128];
    assert_eq!(left.connect(&mut garbage), Err(NcclResult::InvalidUsage));
    let mut right_one = handle;
    assert!(!try_connect(&left, &mut right_one, Some((&right, listener))).unwrap().is_null());
}

/// Connects while the listener, if there is one, is asked for connections.
fn try_connect(
    from: &Plugin,
    handle: &mut support::Handle,
    to: Option<(&Plugin, *mut c_void)>,
) -> Result<*mut c_void, NcclResult> {
    let begin = Instant::now();
    loop {
        let sender = from.connect(handle)?;
        if !sender.is_null() {
            return Ok(sender);
        }
        if let Some((to, listener)) = to {
            let _ = to.accept(listener).unwrap();
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn a_listener_takes_so_many_connections_and_refuses_more() {
    let (left, right) = (plugin(), plugin());
    let (handle, listener) = right.listen().unwrap();
    let other = right.listen().unwrap().1;
    let mut handles = vec![handle; 129];
    let mut ends = vec![None; 129];
    let begin = Instant::now();
    while ends.iter().any(Option::is_none) {
        for (handle, end) in handles.iter_mut().zip(&mut ends) {
            if end.is_none() {
                *end = Some(left.connect(handle)).filter(|sent| *sent != Ok(null_mut()));
            }
        }
        // The other listener's endpoint is the same: it works without accepting.
        assert!(right.accept(other).unwrap().is_null());
        assert!(begin.elapsed() < PATIENCE);
    }
    let refused = ends.iter().flatten().filter(|end| end.is_err()).count();
    assert_eq!(refused, 1);
    right.close_listen(listener).unwrap();
    // Those that were never accepted are told.
    let data = [0; 8];
    for sender in ends.iter().flatten().flatten() {
        is_refused(&left, *sender, &data);
        left.close_send(*sender).unwrap();
    }
}

#[test]
fn pointers_that_mean_nothing_are_errors() {
    let here = plugin();
    let (sender, receiver) = connected(&here, &here);
    let closed = { connected(&here, &here) };
    here.close_send(closed.0).unwrap();
    here.close_recv(closed.1).unwrap();
    let data = [0_u8; 8];
    for wrong in [null_mut(), closed.0, receiver, here.context, std::ptr::without_provenance_mut(7)]
    {
        // SAFETY: it is refused.
        let sent = unsafe { here.isend(wrong, data.as_ptr(), 8, 0) };
        assert_eq!(sent, Err(NcclResult::InvalidArgument));
        assert_eq!(here.close_send(wrong), Err(NcclResult::InvalidArgument));
        assert_eq!(here.test(wrong), Err(NcclResult::InvalidArgument));
    }
    let mut room = [0_u8; 8];
    for count in [0, 9] {
        let rooms = vec![(room.as_mut_ptr(), 8, 0); count];
        // SAFETY: it is refused.
        assert_eq!(unsafe { here.irecv(receiver, &rooms) }, Err(NcclResult::InvalidArgument));
    }
    // SAFETY: it is refused.
    let long = unsafe { here.isend(sender, data.as_ptr(), (1 << 30) + 1, 0) };
    assert_eq!(long, Err(NcclResult::InvalidArgument));
    assert_eq!(here.properties(here.devices().unwrap()).err(), Some(NcclResult::InvalidArgument));
    assert_eq!(here.properties(-1).err(), Some(NcclResult::InvalidArgument));
    here.finalize().unwrap();
    assert_eq!(here.listen().err(), Some(NcclResult::InvalidArgument), "its context is gone");
}

#[test]
fn a_device_is_told_as_it_is() {
    let here = plugin();
    assert_eq!(here.devices().unwrap(), 1);
    let properties = here.properties(0).unwrap();
    // SAFETY: names live as long as the process.
    let name = unsafe { std::ffi::CStr::from_ptr(properties.common.name) };
    assert_eq!(name.to_str(), Ok("lo"));
    assert!(properties.common.pci_path.is_null(), "loopback is no hardware");
    assert_eq!((properties.common.ptr_support, properties.common.net_device_type), (1, 0));
    assert_eq!((properties.common.max_recvs, properties.common.speed), (8, 10_000));
    assert_eq!((properties.virtual_device.ndevs, properties.virtual_device.devs[0]), (1, 0));
    assert_eq!((properties.rail_id, properties.plane_id), (-1, -1));
    assert_eq!(properties.max_p2p_bytes, 1 << 30);
    let mut registration = null_mut();
    let register = |kind, to: &mut *mut c_void| {
        // SAFETY: nothing but the kind is looked at.
        unsafe { here.net.calls.reg_mr.unwrap()(null_mut(), null_mut(), 8, kind, to) }
    };
    assert_eq!(register(1, &mut registration), NcclResult::Success);
    assert!(!registration.is_null());
    assert_eq!(register(2, &mut registration), NcclResult::InvalidArgument, "a GPU's memory");
}

/// Version 10 brings no context: the process has one. Version 11 differs from 12 in the properties.
#[test]
fn older_versions_of_nccl_find_their_tables() {
    use nccl_net_srd::abi::{Net, NetV10, PropertiesV10, PropertiesV11};
    let current = plugin();
    let library = support::library();
    // SAFETY: the symbols are such tables, and pointers are valid for their calls.
    unsafe {
        let old = &*support::symbol(&library, "ncclNetPlugin_v10").cast::<NetV10>();
        let before = &*support::symbol(&library, "ncclNetPlugin_v11").cast::<Net<PropertiesV11>>();
        assert_eq!((old.name, before.name), (b"SRD\0", current.net.name));
        let mut properties = std::mem::MaybeUninit::<PropertiesV10>::uninit();
        let get = old.get_properties.unwrap();
        assert_eq!(get(0, properties.as_mut_ptr()), NcclResult::Success);
        assert_eq!(properties.assume_init().max_coll_bytes, 1 << 30);
        let mut properties = std::mem::MaybeUninit::<PropertiesV11>::uninit();
        let get = before.get_properties.unwrap();
        assert_eq!(get(0, properties.as_mut_ptr()), NcclResult::Success);
        assert_eq!(properties.assume_init().max_multi_request_size, 1);
        assert_eq!(old.init.unwrap()(None, null_mut()), NcclResult::Success);
        let (mut handle, mut listener) = ([0_u8; 128], null_mut());
        let to = handle.as_mut_ptr().cast();
        assert_eq!(old.listen.unwrap()(0, to, &raw mut listener), NcclResult::Success);
        let mut sender: *mut c_void = null_mut();
        let begin = Instant::now();
        while sender.is_null() {
            let mut none = null_mut();
            let connect = old.connect.unwrap();
            let connected = connect(0, null_mut(), to, &raw mut sender, &raw mut none);
            assert_eq!(connected, NcclResult::Success);
            assert!(begin.elapsed() < PATIENCE);
        }
        let receiver = loop {
            let receiver = current.accept(listener).unwrap();
            if !receiver.is_null() {
                break receiver;
            }
        };
        let mut rooms = [(vec![0; 9], 0)];
        let expected = receive(&current, receiver, &mut rooms);
        let sent = send(&current, sender, b"version10", 0);
        assert_eq!(end(&current, expected).unwrap()[0], 9);
        end(&current, sent).unwrap();
        assert_eq!(&rooms[0].0, b"version10");
        current.close_send(sender).unwrap();
        current.close_recv(receiver).unwrap();
        current.close_listen(listener).unwrap();
    }
}

#[test]
#[ignore = "a gigabyte: with --release"]
fn a_gigabyte_goes_through() {
    let (left, right) = (plugin(), plugin());
    let (sender, receiver) = connected(&left, &right);
    let data = pattern(1, 1 << 30);
    let mut rooms = [(vec![0; 1 << 30], 0)];
    let expected = receive(&right, receiver, &mut rooms);
    let sent = send(&left, sender, &data, 0);
    assert_eq!(end(&right, expected).unwrap()[0], 1 << 30);
    assert_eq!(end(&left, sent).unwrap()[0], 1 << 30);
    assert!(rooms[0].0 == data);
    left.close_send(sender).unwrap();
    right.close_recv(receiver).unwrap();
}
