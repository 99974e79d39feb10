//! Appending links of a chain to a file to which other processes append as well.
//!
//! Whoever appends holds the file's lock, flock(2), and goes on from the last line that is there. A
//! guest that can read the file may hold the lock too: who waits in vain goes on with a chain of its
//! own, without a lock. No line is lost, and no chain breaks.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::python::cpython::process;
use crate::python::logs::chain::{Chain, last_of_file};

/// The times that the lock is tried, and the time between two of them.
const TRIES: u32 = 200;
const BETWEEN: Duration = Duration::from_micros(500);
/// The bytes at the end of the file in which its last line is looked for: first, then at most.
const FIRST_LOOK: u64 = 4096;
const LONGEST_LOOK: u64 = 1 << 19;

/// What a process knows of the chain that it appends to.
#[derive(Clone)]
pub struct Linked {
    chain: Chain,
    /// The length of the file after the last line of this process.
    end: u64,
    /// The process that the file was opened in, as a number of copies: copies share its lock.
    opened_in: usize,
    /// True if the last write left a part of a line behind.
    is_torn: bool,
}

/// The file, locked as long as this lives.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Linked {
    pub const fn new(opened_in: usize) -> Self {
        Self { chain: Chain::of_file(), end: 0, opened_in, is_torn: false }
    }

    /// The same in a copy of the process.
    pub fn in_copy(mut self) -> Self {
        if !self.chain.is_of_file() {
            self.chain = Chain::of_writer(self.chain.hash);
        }
        self
    }

    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Appends lines as links. Returns how many bytes of `lines` are done with, and the error that
    /// kept the others back.
    pub fn append(&mut self, file: &File, lines: &[u8]) -> (usize, Option<Error>) {
        if self.opened_in == process::generation() {
            return self.append_by(file, lines);
        }
        // A copy of the process needs a description of its own (open(2)) to lock the file.
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        match OpenOptions::new().read(true).append(true).open(again) {
            Ok(own) => self.append_by(&own, lines),
            Err(_) => {
                self.leave();
                self.append_by(file, lines)
            }
        }
    }

    fn append_by(&mut self, file: &File, lines: &[u8]) -> (usize, Option<Error>) {
        if self.chain.is_of_file() {
            match locked(file) {
                Some(_locked) => {
                    let Ok(before) = self.look(file) else {
                        self.leave();
                        return self.write(file, lines, None);
                    };
                    return self.write(file, lines, Some(before));
                }
                None => self.leave(),
            }
        }
        self.write(file, lines, None)
    }

    /// Goes on with a chain of this process alone.
    fn leave(&mut self) {
        if self.chain.is_of_file() {
            self.chain = Chain::of_writer(self.chain.hash);
        }
    }

    /// Takes over what other processes appended. Returns the length of the file.
    fn look(&mut self, file: &File) -> std::io::Result<u64> {
        let len = file.metadata()?.len();
        self.is_torn = self.is_torn && len > 0;
        if len == self.end || len == 0 {
            // An emptied file goes on with the next line.
            return Ok(len);
        }
        let mut last = [0];
        file.read_exact_at(&mut last, len - 1)?;
        self.is_torn = last != *b"\n";
        let has_own = self.chain.number == 0 || self.has_own_end(file, len);
        if !has_own {
            // What is missing shows: the numbers go on from the line that this process wrote last.
            return Ok(len);
        }
        let mut look = FIRST_LOOK;
        loop {
            let start = len.saturating_sub(look);
            let mut end = vec![0; usize::try_from(len - start).unwrap_or(0)];
            file.read_exact_at(&mut end, start)?;
            if let Some(found) = last_of_file(&end) {
                if found.number >= self.chain.number {
                    self.chain = found;
                }
                return Ok(len);
            }
            if start == 0 {
                return Ok(len);
            }
            if look >= LONGEST_LOOK {
                return Err(ErrorKind::InvalidData.into());
            }
            look *= 8;
        }
    }

    /// Returns whether the last line of this process is where it was written.
    fn has_own_end(&self, file: &File, len: u64) -> bool {
        let mut end = [0; 67];
        let Some(start) = self.end.checked_sub(end.len() as u64).filter(|_| self.end < len) else {
            return false;
        };
        file.read_exact_at(&mut end, start).is_ok() && end[..64] == self.chain.hash
    }

    /// Writes links; `before` is the length of the file if it is locked.
    fn write(
        &mut self,
        mut file: &File,
        lines: &[u8],
        before: Option<u64>,
    ) -> (usize, Option<Error>) {
        let begun = self.chain.clone();
        let mut out = Vec::with_capacity(lines.len() * 2);
        if self.is_torn {
            out.push(b'\n');
        }
        let skipped = out.len();
        self.chain.link_all(lines, &mut out);
        let mut done = 0;
        let error = loop {
            match file.write(&out[done..]) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
            if done == out.len() {
                break None;
            }
        };
        if error.is_none() {
            self.is_torn = false;
            self.end = before.map_or(0, |before| before + done as u64);
            return (lines.len(), None);
        }
        // The whole lines stay.
        let links = memchr::memchr_iter(b'\n', &out[skipped.min(done)..done]).count();
        let kept = memchr::memrchr(b'\n', &out[..done]).map_or(0, |end| end + 1);
        let taken = memchr::memchr_iter(b'\n', lines).take(links).last().map_or(0, |end| end + 1);
        self.chain = begun;
        self.chain.link_all(&lines[..taken], &mut Vec::new());
        let was_torn = skipped > 0 && kept == 0;
        self.is_torn = was_torn || done > kept;
        if let Some(before) = before
            && file.metadata().is_ok_and(|told| told.len() == before + done as u64)
            && file.set_len(before + kept as u64).is_ok()
        {
            self.is_torn = was_torn;
            self.end = before + kept as u64;
        }
        (taken, error)
    }
}

fn locked(file: &File) -> Option<Locked<'_>> {
    for attempt in 0..TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(Locked(file)),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if attempt + 1 < TRIES => {
                std::thread::sleep(BETWEEN);
            }
            Err(_) => break,
        }
    }
    None
}
