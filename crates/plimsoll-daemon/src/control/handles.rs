//! Handles of processes and cgroups: open files that a client sends with its request.
//!
//! A pid or a path means something else in another namespace, and another process once the pid is
//! reused. A file means the same everywhere. pidfds exist since Linux 5.3.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use plimsoll_engine::tasks::{self, TaskKind};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use thiserror::Error;

/// Handles that a message has room for. A request has one.
const HANDLES_MAX: usize = 1;

#[derive(Debug, Error)]
pub enum HandleError {
    #[error("{pid}: no such process")]
    NoProcess { pid: i32 },
    #[error("{tid}: is a thread of process {process}; processes are limited as a whole")]
    Thread { tid: i32, process: i32 },
    #[error("{pid}: cannot open the process: {source}")]
    CannotOpen { pid: i32, source: io::Error },
}

/// Opens a process, as this process's PID namespace numbers it.
pub fn of_process(pid: i32) -> Result<OwnedFd, HandleError> {
    // The library refuses negative numbers by a panic.
    let raw = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let raw = raw.ok_or(HandleError::NoProcess { pid })?;
    let source = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => return Ok(handle),
        Err(Errno::SRCH) => return Err(HandleError::NoProcess { pid }),
        Err(errno) => errno.into(),
    };
    // The kernel's error for a thread differs between versions.
    Err(match tasks::kind(pid) {
        Some(TaskKind::Thread(process)) => HandleError::Thread { tid: pid, process },
        _ => HandleError::CannotOpen { pid, source },
    })
}

pub fn of_cgroup(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::empty())?)
}

/// Sends the first bytes of a request with its handle; returns how many were sent.
pub(super) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    handle: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if handle.is_some() {
        control.push(SendAncillaryMessage::ScmRights(handle.as_slice()));
    }
    let pieces = [IoSlice::new(bytes)];
    // A signal is retried, as `write_all` does for the rest.
    let sent = retry_on_intr(|| sendmsg(stream, &pieces, &mut control, SendFlags::NOSIGNAL));
    Ok(sent?)
}

/// Bytes that were received at once, with their handle.
pub(super) struct Received {
    pub length: usize,
    /// The last handle that came with the bytes.
    pub handle: Option<OwnedFd>,
    /// Whether a handle came that this process cannot take, such as with too many open files.
    pub is_cut: bool,
}

pub(super) fn receive(stream: impl AsFd, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(bytes)];
    let received = recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok(Received {
        length: received.bytes,
        handle: files.flatten().last(),
        is_cut: received.flags.contains(ReturnFlags::CTRUNC),
    })
}
