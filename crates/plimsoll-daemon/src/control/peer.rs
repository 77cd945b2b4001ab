//! Peer of a connection: the credentials that the kernel reports of it.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Group, geteuid};

/// Group of operators: its members have the permissions of root.
pub const OPERATORS: &str = "plimsoll";
/// Life time of the cached gid.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);
/// The kernel allows no process more groups.
const GROUPS_MAX: usize = 65_536;

/// Credentials of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The user: the effective one when it connected.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
    /// The process that connected; 0: it is not visible from here. The pid may have been
    /// reused, so it is for logs only.
    pub pid: i32,
    /// The other groups of that process.
    pub groups: Vec<u32>,
    /// Root, the owner's own user, or a member of the group of operators.
    pub is_operator: bool,
}

impl Peer {
    /// Reads the credentials of a peer. `operators`: gid of the group of operators.
    ///
    /// # Errors
    /// When the kernel does not report them; the peer has no permission then.
    pub fn of(stream: &impl AsFd, operators: Option<u32>) -> std::io::Result<Self> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
        let groups = other_groups(stream)?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let is_member = |operators| gid == operators || groups.contains(&operators);
        Ok(Self {
            uid,
            gid,
            pid: credentials.pid(),
            is_operator: uid == 0 || uid == geteuid().as_raw() || operators.is_some_and(is_member),
            groups,
        })
    }
}

/// The supplementary groups that the process had when it connected.
fn other_groups(stream: &impl AsFd) -> std::io::Result<Vec<u32>> {
    let file = stream.as_fd().as_raw_fd();
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(std::mem::size_of_val(&groups[..]))
            .map_err(std::io::Error::other)?;
        // SAFETY: the kernel writes at most `bytes` bytes into the vector,
        // which is that long, and the number of bytes that it has into `bytes`.
        let returned = unsafe {
            libc::getsockopt(
                file,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        if returned == 0 {
            groups.truncate(bytes as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(groups.len() * 4, 0);
    }
}

/// Cached gid of the group of operators.
#[derive(Debug, Default)]
pub struct Operators {
    known: Mutex<Option<(Instant, Option<u32>)>>,
}

impl Operators {
    /// The gid; `None`: there is no such group.
    pub fn gid(&self) -> Option<u32> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, gid)) = *known
            && at.elapsed() < LOOK_UP_AGAIN
        {
            return gid;
        }
        // A failed look-up grants no permission.
        let found = Group::from_name(OPERATORS).ok().flatten();
        let gid = found.map(|group| group.gid.as_raw());
        *known = Some((Instant::now(), gid));
        gid
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::unistd::{getegid, getgroups};

    use super::*;

    #[test]
    fn credentials_are_those_of_the_process_at_the_other_end() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours, None).unwrap();
        assert_eq!(peer.uid, geteuid().as_raw());
        assert_eq!(peer.gid, getegid().as_raw());
        assert_eq!(peer.pid, std::process::id().cast_signed());
        let mut groups: Vec<u32> = getgroups().unwrap().iter().map(|g| g.as_raw()).collect();
        let mut reported = peer.groups.clone();
        groups.sort_unstable();
        reported.sort_unstable();
        assert_eq!(reported, groups);
        assert!(peer.is_operator, "the owner's own user");
    }

    #[test]
    fn members_of_the_group_are_operators() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = getegid().as_raw();
        assert!(Peer::of(&ours, Some(own)).unwrap().is_operator);
    }
}
