//! Errors of the simulated kernel.

use std::io;

pub(crate) fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
