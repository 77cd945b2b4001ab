//! The state for Prometheus and other readers of OpenMetrics.
//!
//! [`openmetrics`] writes a [`State`](crate::state::State) as OpenMetrics 1.0
//! text, and [`MetricsServer`] serves such a text over HTTP.

mod exposition;
mod families;
mod server;

pub use exposition::openmetrics;
pub use server::{Limits, MetricsServer, THREAD, TRY_AGAIN};
