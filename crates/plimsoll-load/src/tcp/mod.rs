//! The request service split in two over loopback TCP: [`Server`] burns,
//! [`request`] measures.
//! [`http`] measures a web server instead.
//!
//! Both sides accept only loopback addresses: the server burns CPU time for any
//! client, and over a network the latency would not be that of this machine's
//! scheduler.

mod client;
mod http;
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::error::LoadError;
use crate::limits::CONNECTIONS_MAX;
use crate::units::check_count;

pub use client::request;
pub use http::{HttpConfig, http};
pub use server::{Server, ServerConfig, ServerReport};

/// Parses `127.0.0.1:PORT`, `[::1]:PORT` or `localhost:PORT`; `field` is named
/// in the error.
///
/// # Errors
/// [`LoadError::Invalid`] for anything else, including addresses of other
/// machines.
pub fn parse_address(field: &'static str, text: &str) -> Result<SocketAddr, LoadError> {
    let local = text
        .strip_prefix("localhost:")
        .and_then(|port| port.parse().ok())
        .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let address = match local {
        Some(address) => address,
        None => text.parse().map_err(|_| refuse(field, text))?,
    };
    check_loopback(field, address)?;
    Ok(address)
}

fn check_loopback(field: &'static str, address: SocketAddr) -> Result<(), LoadError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(refuse(field, &address.to_string()))
}

fn check_connections(count: usize) -> Result<(), LoadError> {
    check_count("connections", count as u64, CONNECTIONS_MAX as u64)
}

fn refuse(field: &'static str, text: &str) -> LoadError {
    let allowed =
        "a loopback address and port, such as 127.0.0.1:7117, [::1]:7117 or localhost:7117";
    LoadError::invalid(field, text, allowed)
}
