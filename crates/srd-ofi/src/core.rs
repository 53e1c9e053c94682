//! The calls of libfabric that the provider makes, looked up in the libfabric that is loaded.
//!
//! Every library of the process is searched for the calls. So libfabric is found even if it is
//! hidden from ordinary lookups, as under Open MPI, whose plug-ins load it. `dlsym` gives the
//! newest version of each call, so that `fi_dupinfo(NULL)` allocates structures of this core's
//! own size.
//!
//! If a process has loaded several libfabrics, the newest is used for logs and allocation: all
//! libfabrics take memory from one `malloc`, and releases only append to structures, so an older
//! libfabric finds all fields of its release. A newer libfabric would read beyond the end of a
//! structure that an older libfabric allocated.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::bits::fi_version;
use crate::abi::errno::FI_EINVAL;
use crate::abi::info::fi_info;
use crate::abi::provider::{FI_LOG_CORE, FI_LOG_INFO, FI_LOG_WARN, fi_provider};
use crate::settings::Illegible;

type Version = unsafe extern "C" fn() -> u32;
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);
type ParamDefine =
    unsafe extern "C" fn(*const fi_provider, *const c_char, c_int, *const c_char, ...) -> c_int;
type ParamGet = unsafe extern "C" fn(*mut fi_provider, *const c_char, *mut c_void) -> c_int;
type LogEnabled = unsafe extern "C" fn(*const fi_provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(
    *const fi_provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);

/// The oldest release whose structures are known.
pub const OLDEST: u32 = fi_version(1, 17);

/// A libfabric that the process has loaded, with the calls that the provider makes.
#[derive(Debug)]
pub struct Core {
    /// The provider that this libfabric received.
    provider: *mut fi_provider,
    version: Version,
    dup_info: DupInfo,
    free_info: FreeInfo,
    param_define: ParamDefine,
    param_get: ParamGet,
    log_enabled: LogEnabled,
    log: Log,
}

/// Level of a line in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// A problem that the user should fix.
    Warn,
    /// Information such as the reason why a request was refused.
    Info,
}

/// The newest libfabric that was found; null until one is found.
static NEWEST: AtomicPtr<Core> = AtomicPtr::new(ptr::null_mut());

/// Returns the newest libfabric that has loaded the provider; `None` if no libfabric has loaded it
/// yet.
pub fn core() -> Option<&'static Core> {
    // SAFETY: the pointer is null, or points to a leaked core, which is never freed.
    unsafe { NEWEST.load(Ordering::Acquire).as_ref() }
}

/// Searches for the libfabrics that the process has loaded; `None` if the process has loaded no
/// libfabric, or only releases older than [`OLDEST`]. Later calls to these libfabrics pass
/// `provider`.
///
/// # Safety
/// `provider` is valid as long as the process runs.
pub unsafe fn look(provider: *mut fi_provider) -> Option<&'static Core> {
    for name in loaded() {
        let Some(found) = Core::in_library(name.as_deref(), provider) else { continue };
        if core().is_none_or(|core| core.version() < found.version()) {
            NEWEST.store(Box::into_raw(Box::new(found)), Ordering::Release);
        }
    }
    core()
}

/// Returns the names of the loaded libraries; `None` for the program itself.
fn loaded() -> Vec<Option<CString>> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes an entry of its list, whose name is a C string or null,
        // and the pointer given to `dl_iterate_phdr`.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*names.cast::<Vec<Option<CString>>>()).push(Some(CStr::from_ptr(name).into()));
            }
        }
        0
    }
    let mut names = vec![None];
    // SAFETY: the callback gets `names`, and does not use it after the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
}

/// Writes to libfabric's log, if libfabric is loaded and this level is enabled.
pub fn log(level: Level, text: &str) {
    if let Some(core) = core() {
        core.log(level, text);
    }
}

impl Core {
    /// Searches a loaded library and its dependencies for libfabric. A null `name` stands for the
    /// program itself.
    fn in_library(name: Option<&CStr>, provider: *mut fi_provider) -> Option<Self> {
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the name is a C string, or null for the program and the libraries linked to it;
        // nothing is loaded, and no code runs.
        let library = unsafe { libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        let core = Self::at(library, provider);
        if core.is_none() {
            // SAFETY: `library` came from `dlopen`, and no symbol of it is in use. A library with a
            // libfabric stays loaded.
            unsafe { libc::dlclose(library) };
        }
        core
    }

    /// Looks up the calls of libfabric in a library that stays loaded; `None` if a call is missing,
    /// or if the release is older than [`OLDEST`].
    fn at(library: *mut c_void, provider: *mut fi_provider) -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: `library` came from `dlopen` and is not closed.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        // SAFETY: libfabric documents each of these functions with this signature, in all
        // releases since 1.5.
        let core = unsafe {
            use std::mem::transmute;
            Self {
                provider,
                version: transmute::<*mut c_void, Version>(find(c"fi_version")?),
                dup_info: transmute::<*mut c_void, DupInfo>(find(c"fi_dupinfo")?),
                free_info: transmute::<*mut c_void, FreeInfo>(find(c"fi_freeinfo")?),
                param_define: transmute::<*mut c_void, ParamDefine>(find(c"fi_param_define")?),
                param_get: transmute::<*mut c_void, ParamGet>(find(c"fi_param_get")?),
                log_enabled: transmute::<*mut c_void, LogEnabled>(find(c"fi_log_enabled")?),
                log: transmute::<*mut c_void, Log>(find(c"fi_log")?),
            }
        };
        (core.version() >= OLDEST).then_some(core)
    }

    /// Returns the release of this libfabric, in the form of [`fi_version`].
    pub fn version(&self) -> u32 {
        // SAFETY: the function has no argument and reads a constant.
        unsafe { (self.version)() }
    }

    /// Returns an empty `fi_info` with all its attributes, in the layout of this libfabric's
    /// release; null if memory is short.
    #[must_use]
    pub fn allocate_info(&self) -> *mut fi_info {
        // SAFETY: null requests an empty structure.
        unsafe { (self.dup_info)(std::ptr::null()) }
    }

    /// Frees a list of infos.
    ///
    /// # Safety
    /// `info` is null, or came from [`Core::allocate_info`] and is not used any more.
    pub unsafe fn free_info(&self, info: *mut fi_info) {
        // SAFETY: the caller meets the requirements of this function.
        unsafe { (self.free_info)(info) };
    }

    /// Declares a parameter of the provider. `kind` is one of `FI_PARAM_*`.
    pub fn define(&self, name: &CStr, kind: c_int, help: &CStr) {
        let provider = self.provider;
        // SAFETY: the core copies name and help; the help text is an argument of a format string,
        // so its own percent signs have no effect.
        let code = unsafe {
            let text = c"%s".as_ptr();
            (self.param_define)(provider, name.as_ptr(), kind, text, help.as_ptr())
        };
        if code != 0 {
            self.log(Level::Warn, &format!("cannot define {}: {code}", name.to_string_lossy()));
        }
    }

    /// Returns the value of a parameter of type string, if it is set.
    pub fn string(&self, name: &CStr) -> Option<String> {
        let mut value: *mut c_char = std::ptr::null_mut();
        // SAFETY: the value of a string parameter is a pointer to a C string, which belongs to the
        // environment.
        let code =
            unsafe { (self.param_get)(self.provider, name.as_ptr(), (&raw mut value).cast()) };
        if code != 0 || value.is_null() {
            return None;
        }
        // SAFETY: the core returned a C string.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// Returns the value of a parameter of type integer or boolean, if it is set.
    ///
    /// # Errors
    /// [`Illegible`] if the core cannot parse the value.
    pub fn integer(&self, name: &CStr) -> Result<Option<c_int>, Illegible> {
        let mut value: c_int = 0;
        // SAFETY: the value of an integer or boolean is an `int`.
        let code =
            unsafe { (self.param_get)(self.provider, name.as_ptr(), (&raw mut value).cast()) };
        match code {
            0 => Ok(Some(value)),
            code if code == -FI_EINVAL => Err(Illegible),
            _ => Ok(None),
        }
    }

    /// Writes a line to libfabric's log, if the level is enabled.
    pub fn log(&self, level: Level, text: &str) {
        let level = match level {
            Level::Warn => FI_LOG_WARN,
            Level::Info => FI_LOG_INFO,
        };
        let provider = self.provider;
        // SAFETY: the provider lives as long as the process.
        if unsafe { (self.log_enabled)(provider, level, FI_LOG_CORE) } == 0 {
            return;
        }
        let Ok(text) = CString::new(text) else { return };
        // SAFETY: all strings end in zero and live until the call is over.
        unsafe {
            let format = c"%s\n".as_ptr();
            (self.log)(provider, level, FI_LOG_CORE, c"srd".as_ptr(), 0, format, text.as_ptr());
        }
    }
}
