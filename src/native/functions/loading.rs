//! Functions that load objects and look up functions by name: dlopen(3), dlsym(3).

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::native::asking::ActJudge;

/// Loads an object, and replaces functions in it before any of its code is called by name.
///
/// The loader searches a name without a slash where the object that calls says; ours is not that
/// object, so that such a name is searched for here.
///
/// # Safety
/// Called as dlopen(3), with the address that the call returns to.
unsafe extern "C" fn open<J: ActJudge>(
    name: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> *mut c_void {
    // SAFETY: by the caller; the other name is NUL-terminated as well.
    let load = |name| unsafe { libc::dlopen(name, flags) };
    if name.is_null() {
        return load(name);
    }
    J::tables().load(|| {
        // SAFETY: by the caller.
        let found = unsafe { found_for(caller, name) };
        let handle = found.map_or(std::ptr::null_mut(), |path| load(path.as_ptr()));
        if handle.is_null() { load(name) } else { handle }
    })
}

/// Looks up a function: what is replaced in tables is replaced here too.
///
/// # Safety
/// Called as dlsym(3).
unsafe extern "C" fn look_up<J: ActJudge>(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: by the caller.
    unsafe {
        let found = libc::dlsym(handle, name);
        if found.is_null() || name.is_null() {
            return found;
        }
        let name = CStr::from_ptr(name);
        match J::tables().get(name) {
            Some(by) if J::tables().is_real(name, found as usize) => by.by as *mut c_void,
            _ => found,
        }
    }
}

/// `RTLD_DI_SERINFO` and its like of dlinfo(3), and what they answer.
#[cfg(target_env = "gnu")]
mod search {
    use std::ffi::{CString, c_char, c_int, c_uint, c_void};
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use libc::{RTLD_DI_SERINFO, RTLD_DI_SERINFOSIZE, dladdr1, dlinfo};

    const RTLD_DL_LINKMAP: c_int = 2;

    #[repr(C)]
    struct Directory {
        name: *const c_char,
        flags: c_uint,
    }

    #[repr(C)]
    struct Directories {
        size: usize,
        count: c_uint,
        first: [Directory; 1],
    }

    /// The first file of this name in the directories that the object which holds `caller` names.
    ///
    /// # Safety
    /// `caller` is an address of code.
    pub unsafe fn file(caller: *const c_void, name: &std::path::Path) -> Option<CString> {
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        let mut object = std::ptr::null_mut();
        let mut size = MaybeUninit::<Directories>::uninit();
        // SAFETY: the answers have the types that dlinfo(3) gives; the second one is asked for with
        // the size that the first one says, in memory aligned for it.
        unsafe {
            if dladdr1(caller, info.as_mut_ptr(), &mut object, RTLD_DL_LINKMAP) == 0
                || object.is_null()
                || dlinfo(object, RTLD_DI_SERINFOSIZE, size.as_mut_ptr().cast()) != 0
            {
                return None;
            }
            let bytes = (*size.as_ptr()).size;
            let mut answer = vec![0_u64; bytes.div_ceil(size_of::<u64>())];
            let directories = answer.as_mut_ptr().cast::<Directories>();
            (*directories).size = bytes;
            (*directories).count = (*size.as_ptr()).count;
            if dlinfo(object, RTLD_DI_SERINFO, directories.cast()) != 0 {
                return None;
            }
            let first = (&raw const (*directories).first).cast::<Directory>();
            let all = std::slice::from_raw_parts(first, (*directories).count as usize);
            all.iter().find_map(|directory| {
                let directory = std::ffi::CStr::from_ptr(directory.name).to_bytes();
                let mut path = PathBuf::from(std::ffi::OsStr::from_bytes(directory));
                path.push(name);
                path.is_file().then(|| CString::new(path.into_os_string().as_bytes()).ok())?
            })
        }
    }
}

/// The file that the loader finds for the object that calls; `None` if it finds the same without.
///
/// # Safety
/// The name is NUL-terminated; `caller` is an address of code.
unsafe fn found_for(caller: *const c_void, name: *const c_char) -> Option<std::ffi::CString> {
    // SAFETY: by the caller.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') {
        return None;
    }
    let name = Path::new(OsStr::from_bytes(bytes));
    #[cfg(target_env = "gnu")]
    // SAFETY: by the caller.
    return unsafe { search::file(caller, name) };
    // musl does not look at who calls.
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = (caller, name);
        None
    }
}

/// dlopen(3), which hands on the address that it returns to.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn dlopen<J: ActJudge>(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym open::<J>)
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn dlopen<J: ActJudge>(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!("mov x2, x30", "b {}", sym open::<J>)
}

/// dlsym(3). What `RTLD_NEXT` (-1) means depends on who calls, so that the C library's own function
/// takes the place of this one then.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn dlsym<J: ActJudge>(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "cmp rdi, -1",
        "jne 2f",
        "jmp qword ptr [rip + {}@GOTPCREL]",
        "2: jmp {}",
        sym libc::dlsym,
        sym look_up::<J>
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn dlsym<J: ActJudge>(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "cmn x0, #1",
        "b.ne 2f",
        "b {}",
        "2: b {}",
        sym libc::dlsym,
        sym look_up::<J>
    )
}

pub(super) fn table<J: ActJudge>() -> impl Iterator<Item = (&'static CStr, *const ())> {
    [(c"dlopen", dlopen::<J> as *const ()), (c"dlsym", dlsym::<J> as *const ())].into_iter()
}
