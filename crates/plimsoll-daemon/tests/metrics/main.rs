//! The metrics: their text as a reader has it, and their server against bad clients.
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
mod reader;
mod server;
mod text;
mod tools;
