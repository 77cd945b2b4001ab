//! A process that waits before it executes its command, so that it can be moved into its group
//! first.

use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{ForkResult, fork};
use plimsoll_cgroupfs::name::text_of;

use super::child::Child;
use crate::caller::Caller;
use crate::error::{CommandError, EXIT_NOT_FOUND, Result};

/// Byte that starts the command.
const GO: u8 = b'g';

/// A process before it executes its command. Dropping it ends the process.
#[derive(Debug)]
pub struct HeldCommand {
    /// Name of the command, for errors.
    shown: String,
    /// `None`: the command was released.
    process: Option<Child>,
    /// Pipe of the byte [`GO`]; closing it without a byte ends the process.
    go: Option<PipeWriter>,
    /// The kernel's error number, if the command cannot be executed; else nothing.
    problem: PipeReader,
}

impl HeldCommand {
    /// Starts a process for a command. The process has the caller's settings of signals, not
    /// those of this process.
    pub fn start(words: &[OsString]) -> Result<Self> {
        let failed = |error| CommandError::io("cannot start the command")(error);
        let command = ExecArguments::new(words).map_err(failed)?;
        let (problem, tell) = pipe().map_err(failed)?;
        let (wait, go) = pipe().map_err(failed)?;
        // No signal meets a handler of this process in the new one.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let mask = mask.map_err(|error| failed(error.into()))?;
        // SAFETY: the child makes system calls only; it neither allocates nor locks.
        let forked = match unsafe { fork() } {
            Ok(ForkResult::Child) => command.wait_and_execute(&wait, &go, &tell),
            Ok(ForkResult::Parent { child }) => Ok(Child::new(child)),
            Err(error) => Err(failed(error.into())),
        };
        // Fails only with invalid arguments.
        let _ = mask.thread_set_mask();
        Ok(Self {
            shown: text_of(&words[0]),
            process: Some(forked?),
            go: Some(go),
            problem,
        })
    }

    pub fn pid(&self) -> i32 {
        let process = self.process.as_ref();
        process.map_or(0, |process| process.pid().as_raw())
    }

    pub fn let_go(mut self) -> Result<Child> {
        if let Some(mut go) = self.go.take() {
            // If the process is dead, its exit status tells.
            let _ = go.write_all(&[GO]);
        }
        let mut number = [0; 4];
        // The pipe closes when the command is executed.
        if self.problem.read_exact(&mut number).is_err() {
            return self.process.take().ok_or(CommandError::NotStarted);
        }
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
        let command = std::mem::take(&mut self.shown);
        Err(match source.kind() {
            io::ErrorKind::NotFound => CommandError::NotFound { command },
            _ => CommandError::CannotRun { command, source },
        })
    }
}

impl Drop for HeldCommand {
    fn drop(&mut self) {
        drop(self.go.take());
        if let Some(mut process) = self.process.take() {
            // The command was never executed, as intended.
            let _ = process.wait();
        }
    }
}

/// Arguments of `execvp`.
struct ExecArguments {
    /// Pointers to `_words`, and the null pointer that ends them.
    pointers: Vec<*const libc::c_char>,
    _words: Vec<CString>,
}

impl ExecArguments {
    fn new(words: &[OsString]) -> io::Result<Self> {
        let words = words
            .iter()
            .map(|word| CString::new(word.clone().into_vec()));
        let words: Vec<CString> = words.collect::<std::result::Result<_, _>>()?;
        let pointers = words.iter().map(|word| word.as_ptr());
        Ok(Self {
            pointers: pointers.chain([ptr::null()]).collect(),
            _words: words,
        })
    }

    /// Executes the command once it is released. If the parent has died, the process ends without
    /// a message, a core file or the command. Makes only system calls.
    fn wait_and_execute(&self, wait: &PipeReader, go: &PipeWriter, tell: &PipeWriter) -> ! {
        Caller::get().restore();
        // SAFETY: plain system calls on files that this process, a child, has copies of. The
        // buffers are on the stack and as long as told; the arguments end with a null pointer.
        unsafe {
            // Its own copy would keep the pipe open.
            libc::close(go.as_raw_fd());
            let mut word = 0_u8;
            let is_released = loop {
                match libc::read(wait.as_raw_fd(), (&raw mut word).cast(), 1) {
                    -1 if Errno::last() == Errno::EINTR => {}
                    length => break length == 1 && word == GO,
                }
            };
            if is_released {
                libc::execvp(self.pointers[0], self.pointers.as_ptr());
                let number = Errno::last_raw().to_ne_bytes();
                libc::write(tell.as_raw_fd(), number.as_ptr().cast(), number.len());
            }
            libc::_exit(EXIT_NOT_FOUND.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::sync::Mutex;

    use super::*;

    /// Held while pipes are open that the child of another test, which executes nothing, would keep.
    static FORKS: Mutex<()> = Mutex::new(());

    fn words(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    #[test]
    fn dropped_command_never_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let _forks = FORKS.lock();
        let held = HeldCommand::start(&words(&format!("touch {}", mark.display()))).unwrap();
        let process = format!("/proc/{}", held.pid());
        drop(held);
        assert!(!std::path::Path::new(&process).exists());
        assert!(!mark.exists());
    }

    #[test]
    fn a_process_without_its_parent_ends_quietly_whether_or_not_it_was_released() {
        let command = ExecArguments::new(&["/nowhere/at-all".into()]).unwrap();
        let _forks = FORKS.lock();
        for word in [&[][..], &[GO]] {
            let (problem, tell) = pipe().unwrap();
            let (wait, mut go) = pipe().unwrap();
            drop(problem);
            // SAFETY: the child makes system calls only.
            let child = match unsafe { fork() }.unwrap() {
                ForkResult::Child => command.wait_and_execute(&wait, &go, &tell),
                ForkResult::Parent { child } => child,
            };
            go.write_all(word).unwrap();
            drop(go);
            let status = Child::new(child).wait().unwrap();
            let is_quiet = [None, Some(libc::SIGPIPE)].contains(&status.signal());
            assert!(is_quiet && !status.core_dumped(), "{status}");
        }
    }
}
