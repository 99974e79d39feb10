//! The replacement of functions in the relocation tables of loaded objects.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use ahash::{AHashMap, AHashSet};
use memchr::memmem;

use super::objects::{self, Object};

#[derive(Clone, Copy)]
pub struct Replacement {
    pub name: &'static CStr,
    /// Its address.
    pub by: usize,
    pub within: Within,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// All but the interpreter and its extension modules: what these do, audit events tell.
    Libraries,
    /// The extension modules of the interpreter as well: some call functions of others.
    Extensions,
    Everything,
}

#[derive(Default)]
struct Seen {
    /// The objects that were looked at, by the addresses that they are loaded at.
    objects: AHashSet<usize>,
    /// How many objects were loaded and unloaded by then.
    loads: Option<(u64, u64)>,
}

pub struct Tables {
    replacements: AHashMap<&'static [u8], Replacement>,
    real: AHashMap<&'static [u8], usize>,
    seen: UnsafeCell<Seen>,
    /// The number of entries that were replaced, and of those that could not be.
    replaced: AtomicUsize,
    sealed: AtomicUsize,
    /// The nanoseconds that this took.
    took: AtomicU64,
    /// The process of the thread that replaces, 0 if none does.
    busy: AtomicU32,
    /// The number of threads that load objects, and their process.
    loading: AtomicU32,
    process: AtomicU32,
}

// SAFETY: `seen` is used by one thread at a time: the one that `busy` is of.
unsafe impl Sync for Tables {}

impl Tables {
    pub fn new(replacements: impl IntoIterator<Item = Replacement>) -> Self {
        let replacements = replacements.into_iter();
        let by_name = replacements.map(|each| (each.name.to_bytes(), each));
        let replacements: AHashMap<_, _> = by_name.collect();
        let names = replacements.values().map(|each| each.name);
        let real = names.map(|name| (name.to_bytes(), real(name))).collect();
        Self {
            replacements,
            real,
            seen: Default::default(),
            replaced: AtomicUsize::new(0),
            sealed: AtomicUsize::new(0),
            took: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            loading: AtomicU32::new(0),
            process: AtomicU32::new(0),
        }
    }

    pub fn get(&self, name: &CStr) -> Option<&Replacement> {
        self.replacements.get(name.to_bytes())
    }

    /// Returns whether this is the address of the C library's function of that name.
    pub fn is_real(&self, name: &CStr, address: usize) -> bool {
        address != 0 && self.real.get(name.to_bytes()) == Some(&address)
    }

    /// The address of the C library's function of that name; `None` if it has none.
    pub fn real(&self, name: &CStr) -> Option<usize> {
        self.real.get(name.to_bytes()).copied().filter(|at| *at != 0)
    }

    /// How many entries were replaced, how many are in sealed pages, in how many nanoseconds.
    pub fn counts(&self) -> (usize, usize, u64) {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let took = self.took.load(Ordering::Relaxed);
        (count(&self.replaced), count(&self.sealed), took)
    }

    /// Loads an object, and replaces functions in it.
    ///
    /// While another thread loads one too, the loader still writes its tables: the last thread to be
    /// done replaces in all of them.
    pub fn load<R>(&self, load: impl FnOnce() -> R) -> R {
        let process = std::process::id();
        if self.process.swap(process, Ordering::AcqRel) != process {
            // The threads that loaded then are not in this copy of the process.
            self.loading.store(0, Ordering::Release);
        }
        self.loading.fetch_add(1, Ordering::AcqRel);
        let loaded = load();
        if self.loading.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = catch_unwind(AssertUnwindSafe(|| self.replace_in_new()));
        }
        loaded
    }

    pub fn replace_in_new(&self) {
        let process = std::process::id();
        while let Err(other) =
            self.busy.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed)
        {
            if other != process {
                // This process is a copy, and the thread is not in it.
                let _ = self.busy.compare_exchange(other, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
        // SAFETY: no other thread is here, as `busy` was 0.
        let seen = unsafe { &mut *self.seen.get() };
        let mut is_first = true;
        let began = Instant::now();
        objects::each(|object| {
            if std::mem::take(&mut is_first) {
                match seen.loads {
                    Some(before) if before == object.loads => return ControlFlow::Break(()),
                    // Another object may be loaded where one was.
                    Some((_, unloaded)) if unloaded != object.loads.1 => seen.objects.clear(),
                    _ => {}
                }
                seen.loads = Some(object.loads);
            }
            if seen.objects.insert(object.base) {
                self.replace_in(object);
            }
            ControlFlow::Continue(())
        });
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.took.fetch_add(took, Ordering::Relaxed);
        self.busy.store(0, Ordering::Release);
    }

    fn replace_in(&self, object: &Object<'_>) {
        let kind = Kind::of(object);
        let Some(dynamic) = object.dynamic().filter(|_| kind != Kind::System) else {
            return;
        };
        let page = rustix::param::page_size();
        let protected = object.protected(page);
        let versions = dynamic.libc_versions();
        dynamic.imports(|import| {
            let Some(replacement) = self.get(import.name) else {
                return;
            };
            let is_left_out = match kind {
                Kind::Library => false,
                Kind::Extension => replacement.within == Within::Libraries,
                Kind::Interpreter | Kind::System => replacement.within != Within::Everything,
            };
            if is_left_out {
                return;
            }
            let slot = import.slot;
            // SAFETY: the loader keeps an address there.
            let before = unsafe { std::ptr::read_volatile(slot) };
            // A weak import that nobody has stays 0: that is how its library tells.
            if before == replacement.by || before == 0 {
                return;
            }
            // A function of another library may have the same name. Those that all objects get had a
            // library of their own once, which some objects do not name.
            let is_of_libc = versions.as_ref().is_none_or(|all| all.have(import.symbol))
                || replacement.within == Within::Everything
                || self.is_real(import.name, before);
            if !is_of_libc && !import.name.to_bytes().starts_with(b"Py") {
                return;
            }
            let start = slot as usize & !(page - 1);
            let is_protected = protected.contains(&(slot as usize));
            if is_protected && !protect(start, page, libc::PROT_READ | libc::PROT_WRITE) {
                self.sealed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // SAFETY: the loader wrote an address there, so that it is aligned, and writable now. Other
            // threads that call see the one or the other.
            unsafe { &*slot.cast::<AtomicUsize>() }.store(replacement.by, Ordering::Release);
            if is_protected {
                protect(start, page, libc::PROT_READ);
            }
            self.replaced.fetch_add(1, Ordering::Relaxed);
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The C library, the loader, and this package.
    System,
    Interpreter,
    /// An extension module that comes with it.
    Extension,
    Library,
}

impl Kind {
    fn of(object: &Object<'_>) -> Self {
        let path = object.path();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let begins = |with: &[u8]| name.starts_with(with);
        if begins(b"libc.so")
            || begins(b"ld-")
            || begins(b"libc.musl")
            || begins(b"libpthread.so")
            || begins(b"libdl.so")
            // What the C library loads for itself.
            || begins(b"libnss_")
            || memmem::find(path, b"/gconv/").is_some()
            || object.holds(Kind::of as *const () as usize)
        {
            Self::System
        } else if object.is_program
            || begins(b"libpython3")
            // The database that `sqlite3` uses, which audit events tell, and its journal with it.
            || begins(b"libsqlite3.so")
        {
            Self::Interpreter
        } else if memmem::find(path, b"/lib-dynload/").is_some() {
            Self::Extension
        } else {
            Self::Library
        }
    }
}

fn protect(start: usize, size: usize, how: i32) -> bool {
    // SAFETY: the page is one that the loader protected when it had written it; reading stays allowed.
    unsafe { libc::mprotect(start as *mut _, size, how) == 0 }
}

/// 0 if there is none.
fn real(name: &CStr) -> usize {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize };
    match name.to_bytes().strip_suffix(b"64") {
        // musl's loader knows these names, and its dlsym(3) does not any more: they are the same.
        Some(short) if found == 0 => CString::new(short).map_or(0, |short| real(&short)),
        _ => found,
    }
}
