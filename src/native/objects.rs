//! The process's loaded objects, as `dl_iterate_phdr(3)` shows them and elf(5) has them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::ControlFlow;

use libc::{dl_phdr_info, size_t};
use object::NativeEndian as Native;
use object::elf::{self, Dyn64, Rela64, Sym64, Vernaux, Verneed};

type Header = libc::Elf64_Phdr;
type Symbol = Sym64<Native>;
type Relocation = Rela64<Native>;

/// The object that the kernel puts into each process; it imports nothing. musl names it by nothing.
const VDSO: [&[u8]; 3] = [b"linux-vdso.so.1", b"linux-vdso64.so.1", b"linux-gate.so.1"];

pub struct Object<'a> {
    pub base: usize,
    name: &'a CStr,
    headers: &'a [Header],
    /// Loaders name the main program first: glibc by an empty name, musl by what started it.
    pub is_program: bool,
    /// How many objects were loaded, and how many unloaded again, since the process began.
    pub loads: (u64, u64),
}

pub fn each<R>(mut visit: impl FnMut(&Object<'_>) -> ControlFlow<R>) -> Option<R> {
    let mut visiting = Visiting { visit: &mut visit, is_first: true, result: None };
    // SAFETY: `visited` gets what it expects, and the call ends before it does.
    unsafe { libc::dl_iterate_phdr(Some(visited::<R>), (&raw mut visiting).cast()) };
    visiting.result
}

struct Visiting<'a, R> {
    visit: &'a mut dyn FnMut(&Object<'_>) -> ControlFlow<R>,
    is_first: bool,
    result: Option<R>,
}

/// # Safety
/// Called by `dl_iterate_phdr` with a `Visiting<R>`.
unsafe extern "C" fn visited<R>(
    info: *mut dl_phdr_info,
    _size: size_t,
    visiting: *mut c_void,
) -> c_int {
    // SAFETY: the loader keeps all that `info` points to while it calls, and nobody else uses the
    // other meanwhile.
    let (object, visiting) = unsafe {
        let info = &*info;
        let visiting = &mut *visiting.cast::<Visiting<'_, R>>();
        let object = Object {
            base: info.dlpi_addr as usize,
            name: match info.dlpi_name.is_null() {
                true => c"",
                false => CStr::from_ptr(info.dlpi_name),
            },
            headers: std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            is_program: std::mem::take(&mut visiting.is_first),
            loads: (info.dlpi_adds, info.dlpi_subs),
        };
        (object, visiting)
    };
    match (visiting.visit)(&object) {
        ControlFlow::Continue(()) => 0,
        ControlFlow::Break(result) => {
            visiting.result = Some(result);
            1
        }
    }
}

impl<'a> Object<'a> {
    /// Its file; empty for the main program, or what it was started by.
    pub fn path(&self) -> &'a [u8] {
        self.name.to_bytes()
    }

    /// The addresses of its code.
    pub fn code(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let is_code =
            |header: &&Header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        self.headers.iter().filter(is_code).map(|header| self.span(header))
    }

    fn span(&self, header: &Header) -> std::ops::Range<usize> {
        let start = self.base.wrapping_add(header.p_vaddr as usize);
        start..start + header.p_memsz as usize
    }

    pub fn holds(&self, address: usize) -> bool {
        let is_loaded = |header: &&Header| header.p_type == libc::PT_LOAD;
        self.headers.iter().filter(is_loaded).any(|header| self.span(header).contains(&address))
    }

    /// The addresses that the loader protects when it has written them: whole pages alone.
    pub fn protected(&self, page: usize) -> std::ops::Range<usize> {
        let header = |header: &&Header| header.p_type == elf::PT_GNU_RELRO.0;
        self.headers.iter().find(header).map_or(0..0, |header| {
            let span = self.span(header);
            span.start & !(page - 1)..span.end & !(page - 1)
        })
    }

    /// What it says of its imports; `None` if it imports nothing, or says it in another way.
    pub fn dynamic(&self) -> Option<Dynamic<'a>> {
        let is_unnamed = self.path().is_empty() && !self.is_program;
        if VDSO.contains(&self.path()) || is_unnamed {
            return None;
        }
        let header = |header: &&Header| header.p_type == libc::PT_DYNAMIC;
        let header = self.headers.iter().find(header)?;
        let mut entry = self.base.wrapping_add(header.p_vaddr as usize) as *const Dyn64<Native>;
        let mut read = Tables::default();
        // SAFETY: the dynamic section ends with `DT_NULL`.
        unsafe {
            while (*entry).d_tag.get(Native) != elf::DT_NULL {
                let value = (*entry).d_val.get(Native) as usize;
                // Most loaders have made them addresses by now.
                let address = if value < self.base { self.base + value } else { value };
                match (*entry).d_tag.get(Native) {
                    elf::DT_STRTAB => read.texts = address,
                    elf::DT_SYMTAB => read.symbols = address,
                    elf::DT_GNU_HASH => read.hashes = address,
                    elf::DT_JMPREL => read.jumps.0 = address,
                    elf::DT_PLTRELSZ => read.jumps.1 = value / size_of::<Relocation>(),
                    elf::DT_RELA => read.others.0 = address,
                    elf::DT_RELASZ => read.others.1 = value / size_of::<Relocation>(),
                    elf::DT_RELACOUNT => read.relative = value,
                    elf::DT_VERSYM => read.versions = address,
                    elf::DT_VERNEED => read.needed.0 = address,
                    elf::DT_VERNEEDNUM => read.needed.1 = value,
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        let is_whole = read.texts != 0 && read.symbols != 0;
        is_whole.then_some(Dynamic { base: self.base, read, object: std::marker::PhantomData })
    }
}

#[derive(Default)]
struct Tables {
    texts: usize,
    symbols: usize,
    hashes: usize,
    jumps: (usize, usize),
    others: (usize, usize),
    relative: usize,
    versions: usize,
    needed: (usize, usize),
}

pub struct Dynamic<'a> {
    base: usize,
    read: Tables,
    object: std::marker::PhantomData<&'a CStr>,
}

pub struct Import<'a> {
    pub slot: *mut usize,
    pub name: &'a CStr,
    pub symbol: usize,
}

impl<'a> Dynamic<'a> {
    pub fn imports(&self, mut visit: impl FnMut(Import<'a>)) {
        let Tables { jumps, others, .. } = self.read;
        let skipped = self.read.relative.min(others.1);
        // SAFETY: both tables are as long as the object says; those that refer to no symbol come
        // first, and are left out.
        let relocations = unsafe {
            let table = |(start, count): (usize, usize), skipped: usize| match start {
                0 => &[],
                start => std::slice::from_raw_parts(
                    (start as *const Relocation).add(skipped),
                    count - skipped,
                ),
            };
            [table(jumps, 0), table(others, skipped)]
        };
        for relocation in relocations.into_iter().flatten() {
            let kind = relocation.r_type(Native, false);
            let number = relocation.r_sym(Native, false) as usize;
            if number == 0 || !SYMBOL_ADDRESSES.contains(&kind) {
                continue;
            }
            let symbol = self.symbol(number);
            if symbol.st_shndx.get(Native) != elf::SHN_UNDEF {
                continue;
            }
            let offset = relocation.r_offset.get(Native) as usize;
            visit(Import {
                slot: self.base.wrapping_add(offset) as *mut usize,
                name: self.name(symbol),
                symbol: number,
            });
        }
    }

    /// Returns whether it imports a symbol with such a name; `None` if that cannot be told.
    pub fn imports_any(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<bool> {
        if self.read.hashes == 0 {
            return None;
        }
        // SAFETY: the table of hashes begins with four numbers: how many buckets there are, the index
        // of the first symbol that is hashed, how many words and a shift of the filter, which follows,
        // and which the buckets follow. Imported symbols are not hashed, and so come before that index.
        let (buckets, first_hashed) = unsafe {
            let table = self.read.hashes as *const u32;
            let (count, words) = (*table as usize, *table.add(2) as usize);
            let buckets = std::slice::from_raw_parts(table.add(4 + 2 * words), count);
            (buckets, *table.add(1) as usize)
        };
        if buckets.iter().all(|bucket| *bucket == 0) {
            // Where no symbol is hashed, linkers do not agree on what the index is then.
            return None;
        }
        Some((1..first_hashed).any(|number| {
            let symbol = self.symbol(number);
            symbol.st_shndx.get(Native) == elf::SHN_UNDEF && is_it(self.name(symbol).to_bytes())
        }))
    }

    /// The versions of the C library's symbols that it needs; `None` if its symbols have none.
    pub fn libc_versions(&self) -> Option<LibcVersions<'a>> {
        let (start, count) = self.read.needed;
        if self.read.versions == 0 || start == 0 {
            return None;
        }
        let mut versions = LibcVersions {
            numbers: self.read.versions,
            of_libc: Default::default(),
            object: std::marker::PhantomData,
        };
        let mut file = start;
        for _ in 0..count {
            // SAFETY: the entries are as many as the object says, each with the distance to the next
            // one and to the versions of its file, whose names are NUL-terminated.
            unsafe {
                let needed = &*(file as *const Verneed<Native>);
                let mut at = file + needed.vn_aux.get(Native) as usize;
                for _ in 0..needed.vn_cnt.get(Native) {
                    let version = &*(at as *const Vernaux<Native>);
                    let name = self.text(version.vna_name.get(Native)).to_bytes();
                    if name.starts_with(b"GLIBC_") {
                        versions.of_libc.push(version.vna_other.get(Native).0);
                    }
                    at += version.vna_next.get(Native) as usize;
                }
                file += needed.vn_next.get(Native) as usize;
            }
        }
        Some(versions)
    }

    fn symbol(&self, number: usize) -> &'a Symbol {
        // SAFETY: relocations and hashes name symbols of the table.
        unsafe { &*(self.read.symbols as *const Symbol).add(number) }
    }

    fn name(&self, symbol: &Symbol) -> &'a CStr {
        self.text(symbol.st_name.get(Native))
    }

    fn text(&self, offset: u32) -> &'a CStr {
        // SAFETY: symbols and versions name NUL-terminated texts of the table.
        unsafe { CStr::from_ptr((self.read.texts + offset as usize) as *const c_char) }
    }
}

#[cfg(target_arch = "x86_64")]
const SYMBOL_ADDRESSES: [elf::RelocationType; 3] =
    [elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT, elf::R_X86_64_64];
#[cfg(target_arch = "aarch64")]
const SYMBOL_ADDRESSES: [elf::RelocationType; 3] =
    [elf::R_AARCH64_JUMP_SLOT, elf::R_AARCH64_GLOB_DAT, elf::R_AARCH64_ABS64];

pub struct LibcVersions<'a> {
    numbers: usize,
    of_libc: smallvec::SmallVec<[u16; 16]>,
    object: std::marker::PhantomData<&'a CStr>,
}

impl LibcVersions<'_> {
    pub fn have(&self, symbol: usize) -> bool {
        // SAFETY: each symbol has a number in the table.
        let number = unsafe { *(self.numbers as *const u16).add(symbol) };
        self.of_libc.contains(&(number & elf::VERSYM_VERSION))
    }
}
