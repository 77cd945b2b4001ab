//! Compiles the BPF scheduler.

use plimsoll_bpf_build::Instructions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: a build script has one thread, and none was started yet.
    unsafe { plimsoll_bpf_build::build("scheduler.bpf.c", Instructions::V4) }
}
