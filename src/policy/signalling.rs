//! Requests of fcntl(2) by which the kernel sends signals: they end a process that does not expect
//! them, and the process that gets them need not be this one.

/// The requests, by their numbers on most machines.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod requests {
    /// `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`, `F_SETLEASE`, `F_NOTIFY`.
    pub const SENDING: &[i64] = &[8, 10, 15, 1024, 1026];
    /// `F_SETFL`, and the flag `O_ASYNC`.
    pub const FLAGS: (i64, i64) = (4, 0o20000);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod requests {
    /// `F_SETOWN`.
    pub const SENDING: &[i64] = &[6];
    /// `F_SETFL`, and the flag `O_ASYNC`.
    pub const FLAGS: (i64, i64) = (4, 0x40);
}

/// Returns whether a request has signals sent. `argument` is `None` for one that is not a number.
pub fn has_signals_sent(request: i64, argument: Option<i64>) -> bool {
    let (flags, asynchronous) = requests::FLAGS;
    // The kernel takes the lower half alone.
    let request = request & 0xffff_ffff;
    requests::SENDING.contains(&request)
        || (request == flags && argument.is_none_or(|argument| argument & asynchronous != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn requests_by_what_they_do() {
        for (request, argument, sends) in [
            (1, Some(0), false),            // F_GETFD
            (2, Some(1), false),            // F_SETFD
            (4, Some(0o4000), false),       // F_SETFL, O_NONBLOCK
            (4, Some(0o24000), true),       // with O_ASYNC
            (4, None, true),                // with something
            (8, Some(1), true),             // F_SETOWN
            (8 + (1 << 32), Some(1), true), // more than the kernel takes
            (9, Some(0), false),            // F_GETOWN
            (1024, Some(1), true),          // F_SETLEASE
            (1030, Some(0), false),         // F_DUPFD_CLOEXEC
            (1031, Some(4096), false),      // F_SETPIPE_SZ
        ] {
            assert_eq!(has_signals_sent(request, argument), sends, "{request}");
        }
    }
}
