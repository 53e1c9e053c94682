//! The plugin on loopback, called like NCCL calls it: order, tags, groups, and errors.

#![allow(clippy::unwrap_used, unsafe_code)] // a test may fail loudly, and calls like C code

use crate::support;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use crate::support::loopback::{PATIENCE, end, is_refused, pattern, plugin, receive, send};
use crate::support::{Plugin, Request, connected};
use nccl_net_srd::abi::NcclResult;

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
    let tag = |at: usize| i32::try_from(at).unwrap() - 3; // tags may be negative
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
    // SAFETY: the plugin does not accept the receive.
    assert!(unsafe { right.irecv(receiver, &one_more) }.unwrap().is_null());
    let data = pattern(1, 100);
    let sent: Vec<_> = (0..256).map(|at| send(&left, sender, &data, at % 8)).collect();
    // SAFETY: the plugin does not accept the message, or the message ends before the test does.
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
        // SAFETY: the buffer outlives its request.
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
    // A handle with a wrong listener.
    let mut wrong = handle;
    wrong[27] ^= 0x55;
    let refused = try_connect(&left, &mut wrong, Some((&right, listener)));
    assert_eq!(refused, Err(NcclResult::RemoteError));
    // A handle with the address of no endpoint.
    let mut nobody = handle;
    nobody[10..12].copy_from_slice(&9_u16.to_be_bytes());
    assert_eq!(try_connect(&left, &mut nobody, None), Err(NcclResult::RemoteError));
    // A handle with another incarnation at this address.
    let mut stale = handle;
    stale[16..24].copy_from_slice(&77_u64.to_be_bytes());
    assert_eq!(try_connect(&left, &mut stale, None), Err(NcclResult::RemoteError));
    let mut garbage = [0x5a; 128];
    assert_eq!(left.connect(&mut garbage), Err(NcclResult::InvalidUsage));
    let mut right_one = handle;
    assert!(!try_connect(&left, &mut right_one, Some((&right, listener))).unwrap().is_null());
}

/// Opens a connection. While it is being opened, the listener, if there is one, is polled for
/// connections.
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
        // The other listener is at the same endpoint, so this call makes progress without accepting
        // a connection.
        assert!(right.accept(other).unwrap().is_null());
        assert!(begin.elapsed() < PATIENCE);
    }
    let refused = ends.iter().flatten().filter(|end| end.is_err()).count();
    assert_eq!(refused, 1);
    right.close_listen(listener).unwrap();
    // Senders that were not accepted get an error.
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
        // SAFETY: the plugin refuses the call.
        let sent = unsafe { here.isend(wrong, data.as_ptr(), 8, 0) };
        assert_eq!(sent, Err(NcclResult::InvalidArgument));
        assert_eq!(here.close_send(wrong), Err(NcclResult::InvalidArgument));
        assert_eq!(here.test(wrong), Err(NcclResult::InvalidArgument));
    }
    let mut room = [0_u8; 8];
    for count in [0, 9] {
        let rooms = vec![(room.as_mut_ptr(), 8, 0); count];
        // SAFETY: the plugin refuses the call.
        assert_eq!(unsafe { here.irecv(receiver, &rooms) }, Err(NcclResult::InvalidArgument));
    }
    // SAFETY: the plugin refuses the call.
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
    // SAFETY: device names live as long as the process.
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
        // SAFETY: only the kind of memory is read.
        unsafe { here.net.calls.reg_mr.unwrap()(null_mut(), null_mut(), 8, kind, to) }
    };
    assert_eq!(register(1, &mut registration), NcclResult::Success);
    assert!(!registration.is_null());
    assert_eq!(register(2, &mut registration), NcclResult::InvalidArgument, "a GPU's memory");
}

/// Version 10 of the interface passes no context, so all its calls of a process use one common
/// context. Version 11 differs from version 12 in the properties of a device.
#[test]
fn older_versions_of_nccl_find_their_tables() {
    use nccl_net_srd::abi::{Net, NetV10, PropertiesV10, PropertiesV11};
    let current = plugin();
    let library = support::library();
    // SAFETY: the symbols are tables of these types, and the pointers are valid for their
    // functions.
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
