//! A process that waits before it executes its command, so that it can be moved into its group
//! first.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::{AsRawFd as _, RawFd};
use std::process::Child;
use std::thread::JoinHandle;

use super::child;
use crate::error::{CommandError, Result};

/// Byte that starts the command.
const GO: u8 = b'g';

/// A process before it executes its command. Dropping it ends the process.
pub struct Held {
    pid: i32,
    /// Closing it without a byte ends the process.
    go: Option<PipeWriter>,
    /// The thread that starts the process, because that returns only after the command is
    /// executed.
    starter: Option<JoinHandle<Result<Child>>>,
}

impl Held {
    /// Starts a process for a command.
    pub fn start(words: &[OsString]) -> Result<Self> {
        let failed = |error| CommandError::io("cannot make a pipe")(error);
        let (mut told, tell) = pipe().map_err(failed)?;
        let (wait, go) = pipe().map_err(failed)?;
        let starter = start_waiting(
            words.to_vec(),
            Gate {
                tell,
                wait,
                go: go.as_raw_fd(),
            },
        );
        let mut held = Self {
            pid: 0,
            go: Some(go),
            starter: Some(starter),
        };
        let mut pid = [0; 4];
        match told.read_exact(&mut pid) {
            Ok(()) => held.pid = i32::from_ne_bytes(pid),
            // There is no process; the result of the start has the reason.
            Err(error) => {
                held.join()?;
                return Err(CommandError::io("cannot start the command")(error));
            }
        }
        Ok(held)
    }

    /// Pid of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Executes the command.
    pub fn let_go(mut self) -> Result<Child> {
        if let Some(mut go) = self.go.take() {
            // If the process is dead, joining the thread returns the error.
            let _ = go.write_all(&[GO]);
        }
        self.join()
    }

    fn join(&mut self) -> Result<Child> {
        drop(self.go.take());
        let starter = self.starter.take().ok_or(CommandError::NotStarted)?;
        starter.join().map_err(|_| CommandError::NotStarted)?
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.starter.is_some() {
            // The command was never executed, as intended.
            let _ = self.join();
        }
    }
}

/// Pipe ends of the waiting process.
struct Gate {
    /// Pipe to which it writes its pid.
    tell: PipeWriter,
    /// Pipe from which it reads the start byte.
    wait: PipeReader,
    /// Its copy of the other end of that pipe.
    go: RawFd,
}

fn start_waiting(words: Vec<OsString>, gate: Gate) -> JoinHandle<Result<Child>> {
    std::thread::spawn(move || {
        let (tell, wait, go) = (gate.tell.as_raw_fd(), gate.wait.as_raw_fd(), gate.go);
        // Moved here, so that they stay open until the command is executed.
        let _gate = gate;
        child::spawn_after(&words, move || pass(tell, wait, go))
    })
}

/// Between fork and exec: writes the pid, and waits for the start byte.
fn pass(tell: RawFd, wait: RawFd, go: RawFd) -> io::Result<()> {
    // SAFETY: plain system calls on numbers of files that this process, a
    // child, has copies of; the buffers are on the stack and as long as told.
    unsafe {
        // Its own copy would keep the pipe open.
        libc::close(go);
        let pid = libc::getpid().to_ne_bytes();
        if libc::write(tell, pid.as_ptr().cast(), pid.len()) != pid.len().cast_signed() {
            return Err(io::Error::last_os_error());
        }
        let mut word = 0u8;
        loop {
            match libc::read(wait, (&raw mut word).cast(), 1) {
                1 if word == GO => return Ok(()),
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    #[test]
    fn command_runs_only_after_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let held = Held::start(&words(&format!("echo $$ > {}", mark.display()))).unwrap();
        let pid = held.pid();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        assert!(!mark.exists());
        let mut child = held.let_go().unwrap();
        assert_eq!(child.id().cast_signed(), pid);
        assert!(child.wait().unwrap().success());
        let told = std::fs::read_to_string(mark).unwrap();
        assert_eq!(told.trim(), pid.to_string());
    }

    #[test]
    fn dropped_command_never_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let held = Held::start(&words(&format!("touch {}", mark.display()))).unwrap();
        let process = format!("/proc/{}", held.pid());
        drop(held);
        assert!(!std::path::Path::new(&process).exists());
        assert!(!mark.exists());
    }

    #[test]
    fn command_that_cannot_run_fails_at_its_release() {
        let held = Held::start(&["/nowhere/at-all".into()]).unwrap();
        let error = held.let_go().unwrap_err();
        assert!(matches!(error, CommandError::NotFound { .. }), "{error}");
        let folder = std::env::temp_dir().into_os_string();
        let error = Held::start(&[folder]).unwrap().let_go().unwrap_err();
        assert!(matches!(error, CommandError::CannotRun { .. }), "{error}");
    }
}
