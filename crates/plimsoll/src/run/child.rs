//! The process of the command, and its exit code.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use nix::errno::Errno;
use nix::unistd::Pid;
use plimsoll_engine::tasks;

use crate::error::EXIT_FAILED;

/// A child process that nothing else waits for.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    ended_real_time: bool,
}

impl Child {
    pub fn new(pid: Pid) -> Self {
        Self {
            pid,
            ended_real_time: false,
        }
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the child was a real-time task when it ended.
    pub fn ended_real_time(&self) -> bool {
        self.ended_real_time
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    /// Returns the exit status. `None`: the child still runs.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.wait_with(libc::WNOHANG)
    }

    /// Makes the system call itself, because the function of `nix` fails for a child that a
    /// real-time signal has killed. `None`: the child still runs, or a signal interrupted the wait.
    fn wait_with(&mut self, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
        let mut status = 0;
        if !self.has_changed(options | libc::WEXITED | libc::WNOWAIT)? {
            return Ok(None);
        }
        // Until it is waited for, the kernel tells how it was scheduled.
        let policy = tasks::policy_number(self.pid.as_raw());
        self.ended_real_time = policy.is_some_and(tasks::is_real_time);
        // SAFETY: the kernel writes one integer, for which there is room.
        match unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, options) } {
            -1 if Errno::last() == Errno::EINTR => Ok(None),
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => Ok(Some(ExitStatus::from_raw(status))),
        }
    }

    /// Returns whether a signal has stopped the child since the last call.
    pub fn has_stopped(&self) -> io::Result<bool> {
        self.has_changed(libc::WSTOPPED | libc::WNOHANG)
    }

    /// Returns whether the child has changed as the options of the system call say.
    fn has_changed(&self, options: libc::c_int) -> io::Result<bool> {
        let id = self.pid.as_raw().cast_unsigned();
        // SAFETY: all zeros are a valid value of the structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure, for which there is room.
        match unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) } {
            -1 if Errno::last() == Errno::EINTR => Ok(false),
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: the kernel has written the structure of a child's change, or left it as it was.
            _ => Ok(unsafe { info.si_pid() } != 0),
        }
    }
}

/// Exit code for a signal that ended the command, or prevented its start.
pub fn killed_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(EXIT_FAILED))
}

/// Exit code of the command, or 128 + N if signal N killed it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // An ended process has either a code or a signal.
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(EXIT_FAILED),
    )
}
