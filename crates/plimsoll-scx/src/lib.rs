//! Plimsoll's scheduler for sched_ext: the BPF program in `src/bpf`, its loader and its enforcer.

mod backoff;
mod btf;
mod capture;
pub mod debug;
mod enforcer;
mod error;
mod exit;
mod host;
mod kernel;
mod loader;
mod loading;
mod machine;
mod objects;
mod params;
mod pins;
mod room;
mod sample;
mod topology;
pub mod trace;

pub use capture::silence as silence_libbpf;
pub use enforcer::SchedExtEnforcer;
pub use error::SchedExtError;
pub use host::{Readiness, SchedExtHost};

pub(crate) use exit::ExitReport;
pub(crate) use kernel::{SchedExtKernel, SchedExtState};
pub(crate) use loader::Scheduler;

/// The constants and types of `src/bpf/intf.h`, by bindgen.
#[allow(dead_code, non_camel_case_types, non_snake_case)]
#[allow(non_upper_case_globals, unsafe_op_in_unsafe_fn, clippy::all)]
#[allow(clippy::undocumented_unsafe_blocks)]
mod bpf_intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

/// The skeleton of `src/bpf/scheduler.bpf.c`, by libbpf-cargo.
#[allow(dead_code, unsafe_op_in_unsafe_fn, clippy::all)]
#[allow(clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}
