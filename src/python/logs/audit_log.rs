//! The log of decisions: lines of JSON, kept in a buffer until it is full, a denial is added or a guard
//! is left.
//!
//! A copy of the process (fork(2)) drops the lines that it inherited, which are its parent's to write,
//! and writes its own one by one, as it may end without notice. All processes append whole lines, which
//! are links of a chain.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::python::cpython::once::lock;
use crate::python::cpython::process;
use crate::python::logs::chain::Chain;
use crate::python::logs::linked_file::Linked;
use crate::python::values::decode;

/// The version of the lines; it grows when a key changes its meaning.
pub const VERSION: i64 = 2;
/// The lines that are kept back at most, and so are lost if the process is killed.
const MOST_KEPT_BACK: usize = 64;
/// The seconds that a line is kept back while others follow.
const LONGEST: u64 = 1;
/// The bytes of lines that wait for a full disk or a slow reader; further lines are lost.
const MOST_WAITING: usize = 16 << 20;

static ALL: Mutex<Vec<Weak<Sink>>> = Mutex::new(Vec::new());

thread_local! {
    /// True in the threads that hand lines to the host: their own operations are not logged.
    static HANDS_OVER: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone)]
pub struct DecisionLog {
    pub sink: Arc<Sink>,
    pub name: Option<Arc<str>>,
}

pub struct Sink {
    /// `None` if a thread hands the lines to the host's function.
    pub file: Option<LogFile>,
    lines: Mutex<Lines>,
    added: Condvar,
    /// The process that the log was made in, as a number of copies.
    made_in: usize,
    /// The thread that hands the lines over: the first one that takes some.
    reader: OnceLock<ThreadId>,
}

pub struct LogFile {
    /// `None` as it is dropped.
    file: Option<File>,
    pub path: Option<Vec<u8>>,
    /// The device and the number of the file.
    identity: Option<(u64, u64)>,
    /// True for what may have to wait for a reader: a pipe, a socket, a terminal.
    may_wait: bool,
    /// True if it can be read, is locked for nobody else, and all that is written goes to its end.
    has_end: bool,
}

impl LogFile {
    /// The file of a log, open for appending; its path, absolute, if it was opened by one. `is_own`:
    /// it was opened for the log, for reading too.
    pub fn new(file: File, path: Option<Vec<u8>>, is_own: bool) -> Self {
        let may_wait = file.metadata().is_ok_and(|told| !told.is_file());
        Self {
            identity: identity(&file),
            may_wait,
            has_end: is_own && !may_wait,
            file: Some(file),
            path,
        }
    }

    fn own(&self) -> Option<&File> {
        let file = self.file.as_ref()?;
        (identity(file) == self.identity).then_some(file)
    }

    /// Writes lines in one piece as a rule, so that processes can share the file. Returns how many
    /// bytes were written, and the error that kept the others back.
    pub fn append(&self, lines: &[u8], patience: Duration) -> (usize, Option<std::io::Error>) {
        match self.own() {
            Some(own) => write_all(self, own, lines, patience),
            // Code closed all descriptors, and the number may be another file's.
            None => match self.again() {
                Ok(again) => write_all(self, &again, lines, patience),
                Err(error) => (0, Some(error)),
            },
        }
    }

    /// The same for lines that become links of the file's chain.
    fn append_links(&self, lines: &[u8], linked: &mut Linked) -> (usize, Option<std::io::Error>) {
        match self.own() {
            Some(own) => linked.append(own, lines),
            None => match self.again() {
                Ok(again) => linked.append(&again, lines),
                Err(error) => (0, Some(error)),
            },
        }
    }

    fn again(&self) -> std::io::Result<File> {
        let path = self.path.clone().ok_or(ErrorKind::NotFound)?;
        open_to_append(&decode::native_path(path.into())).map(|(file, _)| file)
    }
}

/// Opens a file for appending, and for reading if it may be read, as the second value says.
pub fn open_to_append(path: &Path) -> std::io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    match options.clone().read(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(_) => options.open(path).map(|file| (file, false)),
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if self.own().is_none() {
            // The number is another file's, which stays open.
            std::mem::forget(self.file.take());
        }
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let found = file.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// The bytes that are written to a pipe at once: `PIPE_BUF` of Linux. So many do not wait once it can
/// be written to at all: pipe(7).
const PIECE: usize = 4096;
/// The time that a reader has for a piece while nothing else waits for the log.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How lines become links of a chain.
#[derive(Clone)]
enum Links {
    /// Never: they are a guest's, which the host links.
    None,
    /// As they are added: the log is the only one that writes there, as far as it knows.
    Added(Chain),
    /// As they are written to a file, which others append to as well.
    Written(Linked),
}

impl Links {
    fn in_copy(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Added(chain) => Self::Added(Chain::of_writer(chain.hash)),
            Self::Written(linked) => Self::Written(linked.in_copy()),
        }
    }
}

struct Lines {
    buffer: Vec<u8>,
    links: Links,
    count: usize,
    /// The time of the first of them, in seconds; the time of the last attempt while writing fails.
    since: u64,
    generation: usize,
    lost: u64,
    /// The lost lines that the log does not tell of yet.
    untold: u64,
    is_failing: bool,
    was_told: bool,
    is_closed: bool,
}

impl Lines {
    const fn new(links: Links, generation: usize) -> Self {
        Self {
            buffer: Vec::new(),
            links,
            count: 0,
            since: 0,
            generation,
            lost: 0,
            untold: 0,
            is_failing: false,
            was_told: false,
            is_closed: false,
        }
    }

    fn push(&mut self, lines: &[u8]) {
        match &mut self.links {
            Links::Added(chain) => chain.link_all(lines, &mut self.buffer),
            Links::None | Links::Written(_) => self.buffer.extend_from_slice(lines),
        }
        self.count += 1;
    }
}

impl Sink {
    /// A log to a file; without one, for a thread that takes the lines. Lines that are not `linked`
    /// carry no hashes.
    pub fn new(file: Option<LogFile>, linked: bool) -> Arc<Self> {
        let generation = process::generation();
        let has_end = file.as_ref().is_some_and(|file| file.has_end);
        let links = match (linked, has_end) {
            (false, _) => Links::None,
            (true, false) => Links::Added(Chain::of_writer(Chain::of_file().hash)),
            (true, true) => Links::Written(Linked::new(generation)),
        };
        let sink = Arc::new(Self {
            file,
            lines: Mutex::new(Lines::new(links, generation)),
            added: Condvar::new(),
            made_in: generation,
            reader: OnceLock::new(),
        });
        let mut all = lock(&ALL);
        all.retain(|sink| sink.strong_count() > 0);
        all.push(Arc::downgrade(&sink));
        sink
    }

    pub fn lost(&self) -> u64 {
        self.lines().map_or(0, |lines| lines.lost)
    }

    /// The number and the hash of the last line that this process added to the chain.
    pub fn head(&self) -> Option<(u64, String)> {
        let lines = self.lines()?;
        let chain = match &lines.links {
            Links::None => return None,
            Links::Added(chain) => chain,
            Links::Written(linked) => linked.chain(),
        };
        let hash = String::from_utf8_lossy(&chain.hash).into_owned();
        (chain.number > 0).then_some((chain.number, hash))
    }

    fn is_in_copy(&self) -> bool {
        process::generation() != self.made_in
    }

    /// The lines of this process. `None` in a copy that no thread takes them from: that thread may have
    /// held the lock as the process was copied.
    fn lines(&self) -> Option<MutexGuard<'_, Lines>> {
        if self.file.is_none() && self.is_in_copy() {
            return None;
        }
        let mut lines = lock(&self.lines);
        let generation = process::generation();
        if lines.generation != generation {
            let links = lines.links.clone().in_copy();
            *lines = Lines { is_closed: lines.is_closed, ..Lines::new(links, generation) };
        }
        Some(lines)
    }

    /// Adds a line, which ends with a newline. `is_urgent`: it is not kept back.
    pub fn add(&self, line: &[u8], seconds: u64, is_urgent: bool) {
        let Some(mut lines) = self.lines() else {
            return;
        };
        if lines.is_closed || lines.buffer.len() + line.len() > MOST_WAITING {
            lines.lost += 1;
            lines.untold += 1;
            return;
        }
        if lines.count == 0 {
            lines.since = seconds;
        }
        lines.push(line);
        let is_old = seconds.abs_diff(lines.since) >= LONGEST;
        let is_due = match lines.is_failing {
            true => is_old,
            false => is_urgent || is_old || lines.count >= MOST_KEPT_BACK || self.is_in_copy(),
        };
        if is_due {
            self.write(&mut lines, seconds, Duration::ZERO);
        }
    }

    /// Writes the lines that are kept back, as far as nobody has to be waited for.
    pub fn flush(&self) {
        self.flush_within(Duration::ZERO);
    }

    /// The same, and waits for a slow reader meanwhile: Python code, which that may be, must be able
    /// to run.
    fn flush_within(&self, patience: Duration) {
        if let Some(mut lines) = self.lines()
            && lines.count > 0
        {
            self.write(&mut lines, now().0, patience);
        }
    }

    fn write(&self, lines: &mut Lines, seconds: u64, patience: Duration) {
        let Some(file) = &self.file else {
            self.added.notify_all();
            return;
        };
        if lines.untold > 0 {
            tell_of_lost(lines, seconds);
        }
        let (done, error) = match &mut lines.links {
            Links::Written(linked) => file.append_links(&lines.buffer, linked),
            Links::None | Links::Added(_) => file.append(&lines.buffer, patience),
        };
        lines.buffer.drain(..done);
        lines.is_failing = error.is_some();
        lines.since = seconds;
        match error {
            // A reader that is slow is no fault of the file.
            Some(error) if error.kind() == ErrorKind::WouldBlock => {}
            Some(error) => self.complain(lines, &error),
            None => lines.count = 0,
        }
    }

    fn complain(&self, lines: &mut Lines, error: &std::io::Error) {
        if std::mem::replace(&mut lines.was_told, true) {
            return;
        }
        let path = self.file.as_ref().and_then(|file| file.path.as_deref());
        let name = path.map_or("of a descriptor".into(), String::from_utf8_lossy);
        // Not Python's stream, which may be the guest's.
        let _ = writeln!(
            std::io::stderr(),
            "fastaudit_rs: the audit log {name} cannot be written: {error}. Decisions wait for it, up \
             to 16 MB of them."
        );
    }

    pub fn may_take(&self) -> bool {
        let running = std::thread::current().id();
        self.file.is_none() && *self.reader.get_or_init(|| running) == running
    }

    /// Takes the lines for the host's function, after `wait` at most; `None` once it is closed and
    /// empty. The calling thread counts as the log's own from then on.
    pub fn take(&self, wait: Duration) -> Option<Vec<u8>> {
        HANDS_OVER.set(true);
        let mut lines = self.lines()?;
        if lines.count == 0 && !lines.is_closed {
            let waited = self.added.wait_timeout(lines, wait);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if lines.count == 0 && lines.is_closed {
            return None;
        }
        lines.count = 0;
        Some(std::mem::take(&mut lines.buffer))
    }

    pub fn wake(&self) {
        self.added.notify_all();
    }

    pub fn close(&self) {
        self.flush_within(PATIENCE);
        if let Some(mut lines) = self.lines() {
            lines.is_closed = true;
        }
        self.added.notify_all();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

fn write_all(
    to: &LogFile,
    mut file: &File,
    bytes: &[u8],
    patience: Duration,
) -> (usize, Option<std::io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let piece = if to.may_wait { whole_lines(rest) } else { rest };
        if to.may_wait && !is_ready(file, patience) {
            return (done, Some(ErrorKind::WouldBlock.into()));
        }
        match file.write(piece) {
            Ok(0) => return (done, Some(ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// Returns whether a piece can be written without waiting, after `patience` at most. An error counts
/// too: writing tells of it.
fn is_ready(file: &File, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut waiting = [PollFd::new(file, PollFlags::OUT)];
    let patience = Timespec::try_from(patience).unwrap_or_default();
    poll(&mut waiting, Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// Whole lines that fit into a piece; the beginning of the first one if it does not.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let first = &bytes[..bytes.len().min(PIECE)];
    match memchr::memrchr(b'\n', first) {
        Some(end) => &bytes[..=end],
        None => first,
    }
}

fn tell_of_lost(lines: &mut Lines, seconds: u64) {
    let lost = std::mem::take(&mut lines.untold);
    let line = format!(
        "{{\"version\":{VERSION},\"time\":{seconds},\"event\":\"fastaudit.lost\",\"lost\":{lost}}}\n"
    );
    lines.push(line.as_bytes());
}

/// Writes all logs: the process ends, and no thread runs Python code any more.
pub extern "C" fn flush_all() {
    let all = lock(&ALL);
    let sinks: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    for sink in sinks {
        sink.flush_within(PATIENCE);
    }
}

pub fn hands_over() -> bool {
    HANDS_OVER.get()
}

/// The time since 1970, in seconds and microseconds.
pub fn now() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    (now.as_secs(), now.subsec_micros())
}
