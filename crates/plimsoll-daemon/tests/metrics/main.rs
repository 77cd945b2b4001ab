//! The metrics: their text against a strict reader and `promtool`, their server
//! against bad clients, and all that `deploy/` has for Prometheus and Grafana
//! against a real Prometheus.

#![allow(clippy::unwrap_used)]

mod documents;
mod fixture;
mod http;
mod prometheus;
mod server;
mod strict;
mod text;
mod tools;
