//! The process's shared objects, as `dl_iterate_phdr(3)` shows them and as elf(5) has them.

pub use objects::{any_foreign, holding};

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod objects {
    use std::path::{Path, PathBuf};

    /// It cannot be told on this system, so there may be.
    pub fn any_foreign(_is_standard: impl Fn(&Path) -> bool) -> bool {
        true
    }

    /// It cannot be told here.
    pub fn holding(_function: *const ()) -> Option<PathBuf> {
        None
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod objects {
    use std::ffi::{CStr, OsStr, c_int, c_void};
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info, size_t};
    use pyo3::ffi;

    const DT_NULL: i64 = 0;
    const DT_STRTAB: i64 = 5;
    const DT_SYMTAB: i64 = 6;
    const DT_GNU_HASH: i64 = 0x6fff_fef5;

    /// The functions that an interpreter's own main program imports; an extension imports others.
    const ENTRY_POINTS: [&[u8]; 3] = [b"Py_Main", b"Py_BytesMain", b"Py_RunMain"];

    /// An entry of the dynamic section.
    #[repr(C)]
    struct Dyn {
        tag: i64,
        value: u64,
    }

    /// The object that the kernel puts into each process; it imports nothing.
    const VDSO: [&[u8]; 2] = [b"linux-vdso.so.1", b"linux-vdso64.so.1"];

    /// The addresses at which the interpreter and this package are loaded.
    static KNOWN: OnceLock<[usize; 2]> = OnceLock::new();

    struct Object {
        path: PathBuf,
        is_ours: bool,
        uses_python: bool,
    }

    /// Returns whether some shared object uses Python's C API and is neither ours nor standard.
    pub fn any_foreign(is_standard: impl Fn(&Path) -> bool) -> bool {
        let mut objects: Vec<Object> = Vec::new();
        // SAFETY: `visit` gets the vector, and the call ends before it does.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut objects).cast()) };
        objects.is_empty()
            || objects
                .iter()
                .any(|object| object.uses_python && !object.is_ours && !is_standard(&object.path))
    }

    /// The shared object that a function's code is in; `None` for the interpreter, for ours, and if
    /// there is none.
    pub fn holding(function: *const ()) -> Option<PathBuf> {
        let known = KNOWN.get_or_init(|| {
            [ffi::PyLong_FromLong as *const (), holding as *const ()]
                .map(|own| object_of(own).map_or(0, |own| own.0))
        });
        let (base, path) = object_of(function)?;
        path.filter(|_| !known.contains(&base))
    }

    /// The address and the file of a shared object.
    fn object_of(function: *const ()) -> Option<(usize, Option<PathBuf>)> {
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: any address may be asked for; the answer is there where it is not zero. The name is
        // NUL-terminated, and lives as long as the object is loaded: its function is in use.
        let (base, name) = unsafe {
            if libc::dladdr(function.cast(), info.as_mut_ptr()) == 0 {
                return None;
            }
            let info = info.assume_init();
            let is_named = !info.dli_fname.is_null();
            let name = is_named.then(|| CStr::from_ptr(info.dli_fname).to_bytes());
            (info.dli_fbase as usize, name)
        };
        Some((
            base,
            name.map(|name| PathBuf::from(OsStr::from_bytes(name))),
        ))
    }

    /// # Safety
    /// Called by `dl_iterate_phdr` with the vector that it was given.
    unsafe extern "C" fn visit(
        info: *mut dl_phdr_info,
        _size: size_t,
        objects: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader keeps all that `info` points to while it calls.
        let (object, objects) = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let name = if info.dlpi_name.is_null() {
                c""
            } else {
                CStr::from_ptr(info.dlpi_name)
            };
            let object = Object {
                path: PathBuf::from(OsStr::from_bytes(name.to_bytes())),
                is_ours: holds(info.dlpi_addr, headers, visit as *const () as u64),
                uses_python: !VDSO.contains(&name.to_bytes())
                    && uses_python(info.dlpi_addr, headers),
            };
            (object, &mut *objects.cast::<Vec<Object>>())
        };
        objects.push(object);
        0
    }

    fn holds(base: u64, headers: &[Elf64_Phdr], address: u64) -> bool {
        headers.iter().any(|header| {
            let start = base.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD && (start..start + header.p_memsz).contains(&address)
        })
    }

    /// Returns whether the object imports some symbol of Python's C API. One that cannot be read
    /// may.
    ///
    /// # Safety
    /// The headers are those of an object that is loaded at `base`.
    unsafe fn uses_python(base: u64, headers: &[Elf64_Phdr]) -> bool {
        let Some(dynamic) = headers
            .iter()
            .find(|header| header.p_type == libc::PT_DYNAMIC)
        else {
            // Nothing is imported.
            return false;
        };
        let mut entry = base.wrapping_add(dynamic.p_vaddr) as *const Dyn;
        let (mut texts, mut symbols, mut hashes) = (0, 0, 0);
        // SAFETY: the dynamic section ends with `DT_NULL`. The table of hashes begins with four numbers:
        // how many buckets there are, the index of the first symbol that is hashed, how many words and a
        // shift of the filter, which follows, and which the buckets follow. Imported symbols are not
        // hashed, and so come before that index, each with the place of its NUL-terminated name.
        unsafe {
            while (*entry).tag != DT_NULL {
                // Most loaders have made them addresses by now.
                let value = (*entry).value;
                let address = if value < base { base + value } else { value };
                match (*entry).tag {
                    DT_STRTAB => texts = address,
                    DT_SYMTAB => symbols = address,
                    DT_GNU_HASH => hashes = address,
                    _ => {}
                }
                entry = entry.add(1);
            }
            if texts == 0 || symbols == 0 || hashes == 0 {
                return true;
            }
            let table = hashes as *const u32;
            let (count, first_hashed, words) =
                (*table as usize, *table.add(1), *table.add(2) as usize);
            let buckets = std::slice::from_raw_parts(table.add(4 + 2 * words), count);
            if buckets.iter().all(|bucket| *bucket == 0) {
                // Where no symbol is hashed, linkers do not agree on what the index is then.
                return true;
            }
            (1..first_hashed as usize).any(|index| {
                let symbol = &*(symbols as *const Elf64_Sym).add(index);
                let name = (texts + u64::from(symbol.st_name)) as *const _;
                let name = CStr::from_ptr(name).to_bytes();
                symbol.st_shndx == 0
                    && (name.starts_with(b"Py") || name.starts_with(b"_Py"))
                    && !ENTRY_POINTS.contains(&name)
            })
        }
    }
}
