//! Compiles the BPF program of the guard.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: a build script has one thread, and none was started yet.
    unsafe { plimsoll_bpf_build::build("guard.bpf.c") }
}
