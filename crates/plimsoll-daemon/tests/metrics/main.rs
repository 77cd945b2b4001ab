//! The metrics: their text against a strict reader, and their server against bad clients.
//!
//! `make audit` also shows that a real Prometheus and `promtool` accept them, and all that
//! `deploy/` has for Prometheus and Grafana.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../../../plimsoll/tests/common/wait.rs"]
mod wait;

mod documents;
mod fixture;
mod http;
mod prometheus;
mod server;
mod strict;
mod text;
mod tools;
