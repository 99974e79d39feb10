//! The processes that were started under a guard: they, and the processes that they start in turn,
//! may get signals from it.
//!
//! A process is identified by its number and its start time: the number is another's once it has
//! ended and was waited for.

use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The number of processes beyond which those that have ended are looked for with each new one.
const FEW: usize = 64;

/// The number of generations in which the starter of a process is looked for.
const GENERATIONS: usize = 16;

#[derive(Default)]
pub struct Started(Mutex<Vec<Process>>);

#[derive(Clone, Copy)]
struct Process {
    pid: Pid,
    began: Option<u64>,
}

impl Started {
    pub fn note(&self, pid: Pid) {
        let new = Process { pid, began: began(pid) };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FEW {
            all.retain(|process| is_child(process.pid));
        }
        all.retain(|process| process.pid != pid);
        all.push(new);
    }

    /// Returns whether the process is one of them, a child of this process that was not waited for.
    pub fn has(&self, pid: Pid) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|process| process.pid == pid).copied();
        drop(all);
        found.is_some_and(|process| is_child(pid) && is_same(process.began, began(pid)))
    }

    /// Also the processes that they started.
    pub fn started(&self, pid: Pid) -> bool {
        self.has(pid) || self.has_above(pid)
    }

    fn has_above(&self, pid: Pid) -> bool {
        let mut next = parent(pid);
        for _ in 0..GENERATIONS {
            match next {
                Some(above) if self.has(above) => return true,
                Some(above) => next = parent(above),
                None => return false,
            }
        }
        false
    }
}

fn is_child(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(pid), options).is_ok()
}

/// Also those that ended and were not waited for; `None` if the system does not tell.
pub fn children() -> Option<Vec<Pid>> {
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse().ok().and_then(Pid::from_raw);
    let own = rustix::process::getpid();
    // A procfs of another PID namespace may be mounted there, which lists other processes.
    if number(std::fs::read_link("/proc/self").ok()?.as_os_str()) != Some(own) {
        return None;
    }
    let all = std::fs::read_dir("/proc").ok()?;
    let all = all.filter_map(|entry| number(&entry.ok()?.file_name()));
    Some(all.filter(|pid| parent(*pid) == Some(own)).collect())
}

/// Without start times the number decides: a sandbox may hide a child that has ended.
fn is_same(then: Option<u64>, now: Option<u64>) -> bool {
    match (then, now) {
        (Some(then), Some(now)) => then == now,
        _ => true,
    }
}

pub fn process_of(descriptor: i32) -> Option<Pid> {
    pid_in(&format!("/proc/self/fdinfo/{descriptor}"), "Pid:")
}

/// Returns the process whose number follows a key in a file of proc(5).
pub fn pid_in(file: &str, key: &str) -> Option<Pid> {
    let told = std::fs::read_to_string(file).ok()?;
    let pid = told.lines().find_map(|line| line.strip_prefix(key))?;
    let pid = pid.trim().parse().ok().filter(|pid| *pid > 0)?;
    Pid::from_raw(pid)
}

fn parent(pid: Pid) -> Option<Pid> {
    field(pid, 4)?.parse().ok().and_then(Pid::from_raw)
}

fn began(pid: Pid) -> Option<u64> {
    field(pid, 22)?.parse().ok()
}

/// A field of proc_pid_stat(5) from 1 on; the name of the program may have spaces in it.
fn field(pid: Pid, number: usize) -> Option<String> {
    let told = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let end_of_name = told.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&told[end_of_name + 1..]).ok()?;
    let field = rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?;
    Some(field.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn one_that_began_at_another_time_is_another() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let known = Process { pid, began: Some(1) };
        let started = Started(Mutex::new(vec![known]));
        assert!(!started.has(pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn those_that_ended_are_forgotten() {
        let started = Started::default();
        for _ in 0..FEW + 2 {
            let mut child = Command::new("true").spawn().unwrap();
            started.note(Pid::from_raw(child.id().try_into().unwrap()).unwrap());
            child.wait().unwrap();
        }
        assert!(started.0.lock().unwrap().len() < FEW);
    }
}
