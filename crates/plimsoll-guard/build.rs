//! Compiles the BPF program of the guard.

use plimsoll_bpf_build::Instructions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: a build script has one thread, and none was started yet.
    unsafe { plimsoll_bpf_build::build("guard.bpf.c", Instructions::V3) }
}
