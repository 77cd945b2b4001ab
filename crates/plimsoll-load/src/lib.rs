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
mod ledger;
mod limits;
mod machine;
mod queue;
mod random;
mod report;
mod requests;
mod service;
mod steady;
mod stop;
mod storm;
mod units;

pub use burn::BurnReport;
pub use error::LoadError;
pub use ledger::{Ledger, Run};
pub use machine::available_cpus;
pub use queue::Queue;
pub use report::{Document, Latency, SeriesPoint, ServiceReport};
pub use requests::Requests;
pub use stop::Stop;
pub use units::{duration, nanos, time_between};
