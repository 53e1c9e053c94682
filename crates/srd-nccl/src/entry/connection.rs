//! Functions for connections: `listen`, `connect`, `accept`, and closing.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{handle_of, object, other_kind, out, pointer_of, run, unknown};
use crate::abi::{HANDLE_BYTES, NcclResult};
use crate::listener::Listener;
use crate::plugin::{self, Object, objects};
use crate::port::Port;
use crate::sender::Sender;
use crate::wire::{self, Target};
use crate::{Fault, Outcome};

/// Bytes of a handle, which NCCL transfers to the peer.
type Carried = [u8; HANDLE_BYTES];

/// Returns the endpoint of a communicator on a device.
fn port(context: *mut c_void, device: c_int) -> Outcome<Arc<Port>> {
    match &*object(context)? {
        Object::Context(context) => context.port(device),
        _ => Err(other_kind()),
    }
}

/// Implements `listen` of versions 11 and 12: opens a listener.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn listen(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL guarantees valid pointers: see the module.
    run("listen", || unsafe { listen_at(|| port(context, device), handle, listener) })
}

/// Implements `listen` of version 10: opens a listener.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn listen_v10(
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> NcclResult {
    run("listen", || {
        let port = || plugin::common_context()?.port(device);
        // SAFETY: NCCL guarantees valid pointers: see the module.
        unsafe { listen_at(port, handle, listener) }
    })
}

unsafe fn listen_at(
    port: impl FnOnce() -> Outcome<Arc<Port>>,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> Outcome {
    // SAFETY: NCCL guarantees valid pointers: see the module. A handle has `HANDLE_BYTES` bytes.
    let (to, carried) =
        unsafe { (out("listenComm", listener)?, out("handle", handle.cast::<Carried>())?) };
    *to = std::ptr::null_mut();
    let opened = Listener::open(port()?)?;
    let target = opened.target();
    *to = pointer_of(objects().add(Arc::new(Object::Listener(opened)))?)?;
    *carried = target.encode();
    Ok(())
}

/// Implements `connect` of versions 11 and 12: requests a connection to a listener.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn connect(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    sender: *mut *mut c_void,
    _on_device: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL guarantees valid pointers: see the module.
    run("connect", || unsafe { connect_at(|| port(context, device), handle, sender) })
}

/// Implements `connect` of version 10: requests a connection to a listener.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn connect_v10(
    device: c_int,
    _config: *const c_void,
    handle: *mut c_void,
    sender: *mut *mut c_void,
    _on_device: *mut *mut c_void,
) -> NcclResult {
    run("connect", || {
        let port = || plugin::common_context()?.port(device);
        // SAFETY: NCCL guarantees valid pointers: see the module.
        unsafe { connect_at(port, handle, sender) }
    })
}

/// Opens a connection. The first call starts the connection and stores its number in the handle.
/// Each later call returns the connection if the connection is open, and null otherwise.
unsafe fn connect_at(
    port: impl FnOnce() -> Outcome<Arc<Port>>,
    handle: *mut c_void,
    sender: *mut *mut c_void,
) -> Outcome {
    // SAFETY: NCCL guarantees valid pointers: see the module. A handle has `HANDLE_BYTES` bytes.
    let (to, carried) =
        unsafe { (out("sendComm", sender)?, out("handle", handle.cast::<Carried>())?) };
    *to = std::ptr::null_mut();
    let target = Target::decode(carried)?;
    let begun = wire::pending(carried);
    let number = if begun == 0 {
        let opened = Sender::open(port()?, target)?;
        let number = objects().add(Arc::new(Object::Sender(opened)))?;
        wire::set_pending(carried, number);
        number
    } else {
        begun
    };
    let found = objects().find(number).ok_or_else(unknown)?;
    let Object::Sender(pending) = &*found else { return Err(other_kind()) };
    if pending.target() != target {
        return Err(Fault::argument("the handle was changed while its connection was opened"));
    }
    match pending.is_open() {
        Ok(false) => return Ok(()),
        Ok(true) => *to = pointer_of(number)?,
        Err(fault) => {
            objects().remove(number);
            pending.close();
            wire::set_pending(carried, 0);
            let text = format!("to {}: {}", target.address, fault.text);
            return Err(Fault { text, ..fault });
        }
    }
    wire::set_pending(carried, 0);
    Ok(())
}

/// Implements `accept`: accepts a connection.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn accept(
    listener: *mut c_void,
    receiver: *mut *mut c_void,
    _on_device: *mut *mut c_void,
) -> NcclResult {
    run("accept", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("recvComm", receiver) }?;
        *to = std::ptr::null_mut();
        let found = object(listener)?;
        let Object::Listener(listener) = &*found else { return Err(other_kind()) };
        if let Some(accepted) = listener.accept()? {
            let accepted = Arc::new(Object::Receiver(accepted));
            *to = pointer_of(objects().add(accepted)?)?;
        }
        Ok(())
    })
}

/// Closes an object, if `is` returns true for its kind.
fn close(name: &str, pointer: *mut c_void, is: impl Fn(&Object) -> bool) -> NcclResult {
    run(name, || {
        if !is(&*object(pointer)?) {
            return Err(other_kind());
        }
        match &*objects().remove(handle_of(pointer)).ok_or_else(unknown)? {
            Object::Listener(listener) => listener.close(),
            Object::Sender(sender) => sender.close(),
            Object::Receiver(receiver) => receiver.close(),
            Object::Context(_) => {}
        }
        Ok(())
    })
}

/// Implements `closeSend`: closes a sender.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn close_send(sender: *mut c_void) -> NcclResult {
    close("closeSend", sender, |object| matches!(object, Object::Sender(_)))
}

/// Implements `closeRecv`: closes a receiver.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn close_recv(receiver: *mut c_void) -> NcclResult {
    close("closeRecv", receiver, |object| matches!(object, Object::Receiver(_)))
}

/// Implements `closeListen`: closes a listener.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn close_listen(listener: *mut c_void) -> NcclResult {
    close("closeListen", listener, |object| matches!(object, Object::Listener(_)))
}
