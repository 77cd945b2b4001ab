//! Measurable workloads for Linux schedulers and CPU controllers, and the commands that run them.
//!
//! | module | workload | figures |
//! | --- | --- | --- |
//! | `service` | open-loop request service | tail latency and failures of a latency-critical service |
//! | `burn` | CPU burners | work done by batch tasks |
//! | `storm` | thousands of short-lived processes | cost of a cap to a build or a clean-up |
//! | `steady` | a fixed share of the machine | response of headroom to a load |
//!
//! Every demand is in **CPU time** of the thread or process that burns it.
//! Preemption and throttling therefore show as time that passes, never as work
//! that is left out. Every random draw comes from a seed: the same seed gives
//! the same arrivals and demands.
//!
//! A program runs the workloads by their commands ([`cli`]) and reads their
//! reports ([`Document`]).

mod arrivals;
mod burn;
pub mod cli;
pub mod clock;
mod demand;
mod error;
mod limits;
mod machine;
mod measure;
mod openloop;
mod queue;
mod random;
mod report;
mod requests;
mod series;
mod service;
mod steady;
mod stop;
mod storm;
mod units;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../plimsoll/tests/common/wait.rs"]
mod wait;

pub use arrivals::Arrivals;
pub use burn::BurnReport;
pub use demand::Demand;
pub use error::LoadError;
pub use machine::available_cpus;
pub use report::{Document, Latency, SeriesPoint, ServiceReport};
pub use requests::Requests;
pub use stop::Stop;
pub use units::{duration, nanos};
