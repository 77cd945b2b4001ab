//! Measurable workloads for Linux schedulers and CPU controllers.
//!
//! | module | workload | figures |
//! | --- | --- | --- |
//! | [`service`] | open-loop request service, in one process or over loopback TCP ([`tcp`]) | tail latency and failures of a latency-critical service |
//! | [`burn`] | CPU burners | work done by batch tasks |
//! | [`storm`] | thousands of short-lived processes | cost of a cap to a build or a clean-up |
//! | [`need`] | tasks that each use a fixed amount of CPU time | the rate that a capped task achieves |
//! | [`steady`] | a fixed share of the machine, with steps | response of headroom to a change of load |
//! | [`wake`] | a periodic sleeper | delay from wake-up to running |
//! | [`contend`] | a task that holds a lock, and one that waits for it | cost of priority inversion |
//!
//! Every demand is in **CPU time** of the thread or process that burns it.
//! Preemption and throttling therefore show as time that passes, never as work
//! that is left out. Every random draw comes from a seed: the same seed gives
//! the same arrivals and demands.
//!
//! ```no_run
//! use std::time::Duration;
//! use plimsoll_load::{Arrivals, Demand, Service, ServiceConfig};
//!
//! # fn main() -> Result<(), plimsoll_load::LoadError> {
//! let config = ServiceConfig {
//!     arrivals: Arrivals::Poisson { rate: 300.0 },
//!     demand: Demand::Constant { value: Duration::from_micros(300) },
//!     duration: Duration::from_secs(5),
//!     ..ServiceConfig::default()
//! };
//! let report = Service::start(&config)?.finish()?;
//! println!("p99 {:.0} us, {} failures", report.latency.p99_us, report.failures);
//! # Ok(())
//! # }
//! ```

mod arrival_options;
pub mod arrivals;
pub mod burn;
pub mod cli;

pub mod clock;
mod config;
pub mod contend;
pub mod demand;
mod error;
pub mod limits;
mod lock;
mod machine;
mod measure;
pub mod need;
mod openloop;
mod profile;
mod queue;
mod random;
pub mod report;
mod run;
pub mod schedule;
mod series;
pub mod service;
mod shared;
pub mod steady;
mod stop;
pub mod storm;
pub mod tcp;
pub mod trace;
mod units;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../plimsoll/tests/common/wait.rs"]
mod wait;
mod waits;
pub mod wake;
mod wire;

pub use arrival_options::{ArrivalKind, ArrivalOptions};
pub use arrivals::Arrivals;
pub use burn::{Burn, BurnConfig, BurnReport};
pub use config::ServiceConfig;
pub use contend::{HoldConfig, HoldReport, LockKind, WaitConfig, WaitReport};
pub use demand::Demand;
pub use error::{LoadError, TraceProblem};
pub use machine::available_cpus;
pub use need::{NeedConfig, NeedReport};
pub use report::{Document, Latency, SCHEMA, SeriesPoint, ServiceReport};
pub use run::{OpenLoop, Snapshot};
pub use schedule::{Request, Requests};
pub use service::Service;
pub use steady::{Steady, SteadyConfig, SteadyReport};
pub use stop::Stop;
pub use storm::{StormConfig, StormReport};
pub use trace::Trace;
pub use wake::{WakeConfig, WakeReport};
