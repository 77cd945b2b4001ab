use std::io;

/// Reason why the guard is not attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The kernel lacks what the program needs, or this process lacks a capability: CAP_BPF and
    /// CAP_PERFMON, of Linux 5.15 or later with BTF.
    #[error("the kernel does not take its BPF program: {0}")]
    Load(#[source] libbpf_rs::Error),
    #[error("its timers and rings cannot be made: {0}")]
    Prepare(#[source] libbpf_rs::Error),
    /// The kernel has no such tracepoint.
    #[error("its BPF program cannot be attached: {0}")]
    Attach(#[source] libbpf_rs::Error),
    /// CAP_SYS_NICE is missing, or the cgroup has no real-time budget.
    #[error("the kernel gives this process no real-time thread: {0}")]
    RealTime(#[source] io::Error),
    /// A thread cannot be started, or cannot sleep.
    #[error("a thread cannot be started: {0}")]
    Thread(#[source] io::Error),
}
