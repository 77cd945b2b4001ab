//! Starting the command, and its exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};

use crate::error::{CommandError, EXIT_FAILED, Result};

/// Starts a command once its process has done `prepare`, which makes system
/// calls only: it neither allocates nor locks.
pub fn spawn_after(
    words: &[OsString],
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> Result<Child> {
    let shown = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // SAFETY: between fork and exec, `prepare` makes system calls only, as its
    // callers promise. `Vec` iteration and making an error of a number do not
    // allocate.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CommandError::NotFound { command: shown },
        _ => CommandError::CannotRun {
            command: shown,
            source,
        },
    })
}

/// The exit code for a signal that ended the command, or kept it from starting.
pub fn killed_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(EXIT_FAILED))
}

/// The command's own exit code, or 128 + N when signal N killed it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // A process that has ended did so by one or the other.
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(EXIT_FAILED),
    )
}
