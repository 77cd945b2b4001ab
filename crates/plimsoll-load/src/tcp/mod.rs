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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::config::ServiceConfig;
    use crate::demand::Demand;
    use crate::report::Ending;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn server() -> Server {
        Server::start(&ServerConfig {
            listen: parse_address("listen", "localhost:0").unwrap(),
            workers: 2,
        })
        .unwrap()
    }

    fn config() -> ServiceConfig {
        ServiceConfig {
            arrivals: Arrivals::Uniform { rate: 1_000.0 },
            demand: Demand::Constant {
                value: Duration::from_micros(100),
            },
            duration: Duration::from_millis(300),
            warmup: Duration::from_millis(100),
            grace: Duration::from_secs(3_600),
            ..ServiceConfig::default()
        }
    }

    #[test]
    fn only_loopback_is_accepted() {
        for good in ["127.0.0.1:80", "127.9.9.9:1", "[::1]:80", "localhost:7117"] {
            parse_address("connect", good).unwrap();
        }
        for bad in [
            "10.0.0.1:80",
            "0.0.0.0:80",
            "[::]:80",
            "example.org:80",
            "127.0.0.1",
            "",
            "localhost:x",
        ] {
            let text = parse_address("connect", bad).unwrap_err().to_string();
            assert!(text.starts_with(&format!("connect: '{bad}'")), "{text}");
            assert!(text.contains("loopback"));
        }
        let far = "192.0.2.1:7117".parse().unwrap();
        assert!(matches!(
            request(far, &config()),
            Err(LoadError::Invalid { .. })
        ));
    }

    #[test]
    fn all_requests_are_answered_and_both_sides_agree() {
        let server = server();
        let report = request(server.address(), &config())
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!((report.requests, report.unfinished), (300, 0));
        assert_eq!((report.ending, report.workers), (Ending::Complete, None));
        assert!(report.cpu_seconds >= report.cpu_asked_seconds);
        let served = server.finish().unwrap();
        // The server also served the 99 requests of the warm-up.
        assert_eq!((served.requests, served.connections), (399, 1));
        assert!(served.cpu_seconds >= report.cpu_seconds);
    }

    #[test]
    fn lost_server_is_detected_and_its_requests_fail() {
        let server = server();
        let config = ServiceConfig {
            demand: Demand::Constant {
                value: Duration::from_millis(20),
            },
            duration: Duration::from_secs(3_600),
            warmup: Duration::ZERO,
            ..config()
        };
        let run = request(server.address(), &config).unwrap();
        while run.snapshot().requests < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(server);
        let report = run.finish().unwrap();
        assert_eq!(report.ending, Ending::ConnectionLost);
        assert!(report.unfinished > 0);
        assert_eq!(report.requests, report.answered + report.unfinished);
    }

    #[test]
    fn peer_with_another_protocol_is_refused_by_both_sides() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
            stream
        });
        let error = request(address, &config()).err().unwrap();
        assert!(matches!(error, LoadError::Protocol { .. }), "{error}");
        drop(stranger.join());

        let server = server();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let report = request(server.address(), &config())
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!(report.unfinished, 0);
        assert_eq!(server.finish().unwrap().requests, 399);
    }
}
