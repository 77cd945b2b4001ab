//! Frames between a load client and a load server: fixed size, little-endian.
//!
//! Each side first sends [`HELLO`]. Then the client sends requests (id, CPU
//! demand in ns) and the server answers each (id, CPU time used in ns), in the
//! order of completion.

use std::io::{self, Read, Write};

/// Name and version of the protocol.
pub(crate) const HELLO: [u8; 8] = *b"PLSLOAD1";
/// Bytes of one frame.
const FRAME: usize = 16;

/// A request or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: u64,
    /// CPU demand in a request, CPU time used in an answer.
    pub(crate) cpu_ns: u64,
}

impl Frame {
    pub(crate) fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; FRAME];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.cpu_ns.to_le_bytes());
        out.write_all(&bytes)
    }

    pub(crate) fn read_from(input: &mut impl Read) -> io::Result<Self> {
        let (mut id, mut cpu_ns) = ([0; 8], [0; 8]);
        input.read_exact(&mut id)?;
        input.read_exact(&mut cpu_ns)?;
        Ok(Self {
            id: u64::from_le_bytes(id),
            cpu_ns: u64::from_le_bytes(cpu_ns),
        })
    }
}

/// Sends our greeting and checks the peer's.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&HELLO)?;
    let mut theirs = [0; HELLO.len()];
    stream.read_exact(&mut theirs)?;
    if theirs == HELLO {
        return Ok(());
    }
    let text = format!("it greeted with {:?}", String::from_utf8_lossy(&theirs));
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}
