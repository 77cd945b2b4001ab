//! Compiles the BPF scheduler.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: a build script has one thread, and none was started yet.
    unsafe { plimsoll_bpf_build::build("scheduler.bpf.c") }
}
