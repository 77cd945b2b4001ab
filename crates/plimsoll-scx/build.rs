//! Compiles the BPF scheduler, and makes the Rust side of its skeleton and of
//! the types that it shares with user space. Which clang: see
//! `.cargo/config.toml`.

use std::error::Error;
use std::path::Path;

/// What scx_cargo takes additional compiler flags from.
const EXTRA_CFLAGS: &str = "BPF_EXTRA_CFLAGS_PRE_INCL";

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../policy/include")
        .canonicalize()?;

    // Folders: cargo looks at every file in them. Of the headers scx_cargo
    // would name only those that lie beside the program.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed={}", policy.display());

    add_include_path(&policy);
    scx_cargo::BpfBuilder::new()?
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/scheduler.bpf.c", "bpf")
        .build()?;
    Ok(())
}

fn add_include_path(folder: &Path) {
    let mut flags = std::env::var(EXTRA_CFLAGS).unwrap_or_default();
    flags.push_str(&format!(" -I{}", folder.display()));
    // SAFETY: a build script has one thread, and none was started yet.
    unsafe { std::env::set_var(EXTRA_CFLAGS, flags) };
}
