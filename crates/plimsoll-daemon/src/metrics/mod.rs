//! The state for Prometheus and whoever else reads its formats.
//!
//! [`openmetrics`] writes a [`State`](crate::state::State) as OpenMetrics 1.0
//! text, and [`MetricsServer`] serves such a text over HTTP.

mod classic;
mod exposition;
mod families;
mod negotiation;
mod reply;
mod server;

pub use classic::classic;
pub use exposition::openmetrics;
pub use server::MetricsServer;
