//! The kernel's process events connector (Documentation/driver-api/connector.rst,
//! include/uapi/linux/cn_proc.h): a netlink socket that reports every process that starts, runs
//! another program, or changes its user.
//!
//! It takes `CAP_NET_ADMIN` and the first network, process and user
//! namespaces of the host.

use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_CONNECTOR;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

/// Room in the kernel for some thousand events that were not read yet.
pub(super) const QUEUE_BYTES: usize = 8 << 20;
/// An event is less than a hundred bytes.
const MESSAGE_BYTES_MAX: usize = 512;
/// Maximum number of messages of one read: more than the queue has room for, so that a read ends
/// however fast the kernel writes.
const MESSAGES_MAX: usize = 64 * 1024;
/// The multicast group and the address of process events (`CN_IDX_PROC`).
const PROCESSES: u32 = 1;

/// A message of the connector (`struct nlmsghdr`, then `struct cn_msg`).
#[repr(C)]
struct Message {
    length: u32,
    kind: u16,
    flags: u16,
    netlink_sequence: u32,
    port: u32,
    index: u32,
    value: u32,
    sequence: u32,
    acknowledged: u32,
    data_length: u16,
    data_flags: u16,
    event: Event,
}

/// The first fields of `struct proc_event`. In a message it follows without alignment.
#[repr(C, packed(4))]
struct Event {
    what: u32,
    cpu: u32,
    timestamp_ns: u64,
    /// Of a fork: thread and process of the parent, then those of the child.
    /// Of the acknowledgement of a request: the error. Else: thread and
    /// process.
    ids: [i32; 4],
}

const DATA: usize = offset_of!(Message, event);
const WHAT: usize = DATA + offset_of!(Event, what);
const IDS: usize = DATA + offset_of!(Event, ids);

/// Kinds of events (`enum what`).
const ACKNOWLEDGED: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const UID: u32 = 4;
const NAME: u32 = 0x200;

/// Requests (`enum proc_cn_mcast_op`).
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;

/// A parsed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parsed {
    /// A process has appeared or changed.
    Process(i32),
    /// The acknowledgement of a request: its number, and an error or 0.
    Answer { request: u32, error: i32 },
}

/// The connector, listening.
#[derive(Debug)]
pub(super) struct Connector {
    socket: Socket,
    /// Number of its requests. All listeners receive all acknowledgements.
    request: u32,
}

impl Connector {
    /// Begins to listen. `queue_bytes`: size of the kernel's queue.
    ///
    /// # Errors
    /// When the kernel has no connector, or this process has no permission for it.
    pub(super) fn start(queue_bytes: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_CONNECTOR)?;
        socket.set_non_blocking(true)?;
        attach_filter(&socket)?;
        // The first takes a privilege, the second has a limit.
        let forced = setsockopt(&socket, sockopt::RcvBufForce, &queue_bytes);
        let _ = forced.or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &queue_bytes));
        socket.bind(&SocketAddr::new(0, 1 << (PROCESSES - 1)))?;
        let mut address = SocketAddr::new(0, 0);
        socket.get_address(&mut address)?;
        let connector = Self {
            socket,
            request: address.port_number(),
        };
        connector.ask(LISTEN)?;
        connector.expect_answer()?;
        Ok(connector)
    }

    fn ask(&self, what: u32) -> io::Result<()> {
        let message = request_bytes(self.request, what);
        self.socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// Waits for the acknowledgement. The kernel queues it before it returns from the request;
    /// outside the first namespaces it may not send one at all.
    fn expect_answer(&self) -> io::Result<()> {
        for _ in 0..MESSAGES_MAX {
            match self.receive() {
                Ok(Some(Parsed::Answer { request, error })) if request == self.request => {
                    return match error {
                        0 => Ok(()),
                        error => Err(io::Error::from_raw_os_error(error)),
                    };
                }
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            ErrorKind::Unsupported,
            "the kernel does not answer",
        ))
    }

    /// Reads all events, and calls `each` with the process of each. Returns
    /// whether some were lost because the queue was full.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub(super) fn read(&self, mut each: impl FnMut(i32)) -> io::Result<bool> {
        let mut is_lost = false;
        for _ in 0..MESSAGES_MAX {
            match self.receive() {
                Ok(Some(Parsed::Process(pid))) => each(pid),
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => is_lost = true,
                Err(error) => return Err(error),
            }
        }
        Ok(is_lost)
    }

    /// Receives the next message; `None`: it is irrelevant.
    fn receive(&self) -> io::Result<Option<Parsed>> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        loop {
            let mut room = &mut buffer[..];
            match self.socket.recv_from(&mut room, 0) {
                Ok((length, sender)) => {
                    let is_kernel = sender.port_number() == 0;
                    let message = &buffer[..length.min(MESSAGE_BYTES_MAX)];
                    return Ok(parse(message).filter(|_| is_kernel));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Kernels before 6.6 count listeners, and do not notice that a socket is closed.
        let _ = self.ask(IGNORE);
    }
}

impl AsFd for Connector {
    /// Readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses a message; `None`: it is irrelevant.
fn parse(message: &[u8]) -> Option<Parsed> {
    let word = |offset: usize| -> Option<u32> {
        let bytes = message.get(offset..offset + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let id = |index: usize| word(IDS + 4 * index).map(u32::cast_signed);
    if word(offset_of!(Message, index))? != PROCESSES {
        return None;
    }
    let (thread, process) = match word(WHAT)? {
        ACKNOWLEDGED => {
            // The kernel adds one. (It overwrites the sequence number.)
            let acknowledged = word(offset_of!(Message, acknowledged))?;
            let request = acknowledged.wrapping_sub(1);
            let error = id(0)?;
            return Some(Parsed::Answer { request, error });
        }
        FORK => (id(2)?, id(3)?),
        EXEC | UID | NAME => (id(0)?, id(1)?),
        _ => return None,
    };
    (thread == process).then_some(Parsed::Process(process))
}

/// A request to the kernel, of some number.
fn request_bytes(request: u32, what: u32) -> Vec<u8> {
    let data = what.to_ne_bytes();
    let length = (DATA + data.len()) as u32;
    let mut message = Vec::with_capacity(DATA + data.len());
    message.extend(length.to_ne_bytes());
    message.extend((libc::NLMSG_DONE as u16).to_ne_bytes());
    message.extend(0u16.to_ne_bytes());
    // Netlink's own sequence number and port, then the connector's address
    // (index and value), sequence number and acknowledged number.
    for word in [0, 0, PROCESSES, 1, 0, request] {
        message.extend(word.to_ne_bytes());
    }
    message.extend((data.len() as u16).to_ne_bytes());
    message.extend(0u16.to_ne_bytes());
    message.extend(data);
    message
}

/// Has the kernel drop messages that [`parse`] would, before they wake this process: most are
/// about threads.
fn attach_filter(socket: &impl AsRawFd) -> io::Result<()> {
    let mut filter = filter();
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads one `sock_fprog`, and as many instructions as
    // that says; both live until the call returns.
    let returned = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    Errno::result(returned)?;
    Ok(())
}

/// The filter, in classic BPF. That loads words in network byte order, so they
/// are compared with swapped ones. Jumps count from the next instruction.
fn filter() -> [libc::sock_filter; 16] {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const KEEP: u32 = libc::BPF_MISC | libc::BPF_TAX;
    const IF: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_KEPT: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
    const GO: u32 = libc::BPF_JMP | libc::BPF_JA;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let id = |index: usize| (IDS + 4 * index) as u32;
    [
        step(LOAD, WHAT as u32, 0, 0),
        step(IF, ACKNOWLEDGED.to_be(), 13, 0), // take it
        step(IF, FORK.to_be(), 7, 0),          // the child's ids
        step(IF, EXEC.to_be(), 2, 0),          // the ids
        step(IF, UID.to_be(), 1, 0),           // the ids
        step(IF, NAME.to_be(), 0, 8),          // the ids, or drop it
        step(LOAD, id(0), 0, 0),
        step(KEEP, 0, 0, 0),
        step(LOAD, id(1), 0, 0),
        step(GO, 3, 0, 0), // compare
        step(LOAD, id(2), 0, 0),
        step(KEEP, 0, 0, 0),
        step(LOAD, id(3), 0, 0),
        step(IF_KEPT, 0, 1, 0), // a process, not one of its threads: take it
        step(RETURN, 0, 0, 0),
        step(RETURN, u32::MAX, 0, 0),
    ]
}
