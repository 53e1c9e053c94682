//! The plugin in the way NCCL uses it: loaded at run time, and called through its table.

#![allow(dead_code, reason = "each user needs a part")]

pub(crate) mod loopback;

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use nccl_net_srd::abi::{HANDLE_BYTES, NcclResult, Net, PropertiesV12};

/// A request, or null.
pub(crate) type Request = *mut c_void;
/// The handle of a listener.
pub(crate) type Handle = [u8; HANDLE_BYTES];
/// Result of a call.
pub(crate) type Outcome<T> = Result<T, NcclResult>;

/// Returns the path of a file that Cargo has built for this profile.
pub(crate) fn built(file: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let found = here.ancestors().map(|directory| directory.join(file)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("`cargo test -p srd-nccl` builds {file}"))
}

/// Returns the path of the library. It is in `deps`: tests and examples do not update the copy that
/// `cargo build` makes of it.
pub(crate) fn library() -> PathBuf {
    let other = std::env::var_os("NCCL_PAIR_PLUGIN");
    other.map_or_else(|| built("deps/libnccl_net_srd.so"), PathBuf::from)
}

/// Returns the address of a symbol of the library.
pub(crate) fn symbol(library: &Path, name: &str) -> *const c_void {
    let (path, name) =
        (CString::new(library.to_str().unwrap()).unwrap(), CString::new(name).unwrap());
    // SAFETY: both are C strings.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{} cannot be loaded", library.display());
        libc::dlsym(handle, name.as_ptr()).cast_const()
    }
}

/// Prints the plugin's log on standard error.
unsafe extern "C" fn logger(
    level: c_int,
    _: c_ulong,
    _: *const c_char,
    _: c_int,
    _: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the plugin passes one string after the format.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
    eprintln!("[{level}] {text}");
}

/// The plugin with one communicator's context.
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    pub(crate) net: &'static Net<PropertiesV12>,
    pub(crate) context: *mut c_void,
}

// SAFETY: NCCL also calls the plugin from all of its threads.
unsafe impl Send for Plugin {}
// SAFETY: NCCL also calls the plugin from all of its threads.
unsafe impl Sync for Plugin {}

fn outcome<T>(result: NcclResult, value: T) -> Outcome<T> {
    if result == NcclResult::Success { Ok(value) } else { Err(result) }
}

impl Plugin {
    /// Loads the library, and creates a context.
    pub(crate) fn load() -> Outcome<Self> {
        let table = symbol(&library(), "ncclNetPlugin_v12").cast::<Net<PropertiesV12>>();
        // SAFETY: the symbol is a table of this type, and the library is never unloaded.
        let net = unsafe { table.as_ref() }.expect("the plugin has version 12");
        let mut context = null_mut();
        let config = -1_i32;
        // SAFETY: on these machines, the logger accepts the same calls as C's variadic function.
        let result = unsafe {
            let logger: nccl_net_srd::abi::Logger = std::mem::transmute(logger as *const ());
            let config = (&raw const config).cast();
            net.init.unwrap()(&raw mut context, 7, config, Some(logger), null_mut())
        };
        outcome(result, Self { net, context })
    }

    pub(crate) fn devices(&self) -> Outcome<c_int> {
        let mut count = -1;
        // SAFETY: the pointers are valid.
        let result = unsafe { self.net.devices.unwrap()(&raw mut count) };
        outcome(result, count)
    }

    pub(crate) fn properties(&self, device: c_int) -> Outcome<PropertiesV12> {
        let mut properties = std::mem::MaybeUninit::uninit();
        // SAFETY: the pointers are valid, and a successful call has filled the structure.
        unsafe {
            let result = self.net.get_properties.unwrap()(device, properties.as_mut_ptr());
            if result == NcclResult::Success { Ok(properties.assume_init()) } else { Err(result) }
        }
    }

    pub(crate) fn listen(&self) -> Outcome<(Handle, *mut c_void)> {
        let (mut handle, mut listener) = ([0; HANDLE_BYTES], null_mut());
        // SAFETY: the pointers are valid.
        let result = unsafe {
            let to = (&raw mut handle).cast();
            self.net.listen.unwrap()(self.context, 0, to, &raw mut listener)
        };
        outcome(result, (handle, listener))
    }

    pub(crate) fn connect(&self, handle: &mut Handle) -> Outcome<*mut c_void> {
        let mut sender = null_mut();
        // SAFETY: the pointers are valid.
        let result = unsafe {
            let handle = std::ptr::from_mut(handle).cast();
            self.net.connect.unwrap()(self.context, 0, handle, &raw mut sender, null_mut())
        };
        outcome(result, sender)
    }

    pub(crate) fn accept(&self, listener: *mut c_void) -> Outcome<*mut c_void> {
        let mut receiver = null_mut();
        // SAFETY: the pointers are valid.
        let result =
            unsafe { self.net.calls.accept.unwrap()(listener, &raw mut receiver, null_mut()) };
        outcome(result, receiver)
    }

    /// Calls `isend`.
    ///
    /// # Safety
    /// The bytes stay valid until the request has ended, or the sender was closed.
    pub(crate) unsafe fn isend(
        &self,
        sender: *mut c_void,
        data: *const u8,
        size: usize,
        tag: i32,
    ) -> Outcome<Request> {
        let mut request = null_mut();
        let data = data.cast_mut().cast();
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let result = unsafe {
            let call = self.net.calls.isend.unwrap();
            call(sender, data, size, tag, null_mut(), null_mut(), &raw mut request)
        };
        outcome(result, request)
    }

    /// Calls `irecv`.
    ///
    /// # Safety
    /// The buffers stay valid until the request has ended, or the receiver was closed.
    pub(crate) unsafe fn irecv(
        &self,
        receiver: *mut c_void,
        rooms: &[(*mut u8, usize, i32)],
    ) -> Outcome<Request> {
        let mut data: Vec<*mut c_void> = rooms.iter().map(|room| room.0.cast()).collect();
        let mut sizes: Vec<usize> = rooms.iter().map(|room| room.1).collect();
        let mut tags: Vec<c_int> = rooms.iter().map(|room| room.2).collect();
        let mut nothing = vec![null_mut(); rooms.len()];
        // NCCL marks receives whose completion is optional in this way.
        let mut request = std::ptr::without_provenance_mut(1);
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let result = unsafe {
            self.net.calls.irecv.unwrap()(
                receiver,
                c_int::try_from(rooms.len()).unwrap(),
                data.as_mut_ptr(),
                sizes.as_mut_ptr(),
                tags.as_mut_ptr(),
                nothing.as_mut_ptr(),
                nothing.as_mut_ptr(),
                &raw mut request,
            )
        };
        outcome(result, request)
    }

    /// Returns the sizes of the parts of a request; `None` if the request has not ended.
    pub(crate) fn test(&self, request: Request) -> Outcome<Option<[c_int; 8]>> {
        let (mut done, mut sizes) = (-1, [-1; 8]);
        // SAFETY: the pointers are valid.
        let result =
            unsafe { self.net.calls.test.unwrap()(request, &raw mut done, sizes.as_mut_ptr()) };
        outcome(result, (done == 1).then_some(sizes))
    }

    /// Tests a request until it has ended. Returns the sizes of its parts.
    pub(crate) fn wait(&self, request: Request) -> Outcome<[c_int; 8]> {
        loop {
            if let Some(sizes) = self.test(request)? {
                return Ok(sizes);
            }
        }
    }

    pub(crate) fn close_send(&self, sender: *mut c_void) -> Outcome<()> {
        // SAFETY: the plugin checks the pointer.
        outcome(unsafe { self.net.calls.close_send.unwrap()(sender) }, ())
    }

    pub(crate) fn close_recv(&self, receiver: *mut c_void) -> Outcome<()> {
        // SAFETY: the plugin checks the pointer.
        outcome(unsafe { self.net.calls.close_recv.unwrap()(receiver) }, ())
    }

    pub(crate) fn close_listen(&self, listener: *mut c_void) -> Outcome<()> {
        // SAFETY: the plugin checks the pointer.
        outcome(unsafe { self.net.calls.close_listen.unwrap()(listener) }, ())
    }

    pub(crate) fn finalize(&self) -> Outcome<()> {
        // SAFETY: the plugin checks the pointer.
        outcome(unsafe { self.net.finalize.unwrap()(self.context) }, ())
    }
}

/// Opens a connection from one communicator to another. Returns its sender and its receiver.
pub(crate) fn connected(from: &Plugin, to: &Plugin) -> (*mut c_void, *mut c_void) {
    let (mut handle, listener) = to.listen().unwrap();
    let (mut sender, mut receiver): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
    while sender.is_null() || receiver.is_null() {
        if sender.is_null() {
            sender = from.connect(&mut handle).unwrap();
        }
        if receiver.is_null() {
            receiver = to.accept(listener).unwrap();
        }
    }
    to.close_listen(listener).unwrap();
    (sender, receiver)
}
