//! Compiles a crate's BPF program in its build script, and makes the Rust side of its skeleton and
//! of the types that it shares with user space. The choice of clang is in `.cargo/config.toml`.
//!
//! The program is the same, byte for byte, in whatever folder the project lies. LLVM orders
//! forward declared types in BTF by their addresses, and those depend on the lengths of the
//! paths that the compiler meets. So it works on a copy whose paths have the same lengths
//! everywhere.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Variable with additional compiler flags for scx_cargo.
const EXTRA_CFLAGS: &str = "BPF_EXTRA_CFLAGS_PRE_INCL";
/// The sources, and the core's headers: both in the crate's folder and in that of the copy.
const SOURCES: [&str; 2] = ["src/bpf", "../../policy/include"];
/// The files that the crate includes.
const OBJECT: &str = "bpf.bpf.o";
const SKELETON: &str = "bpf_skel.rs";
const SHARED_TYPES: &str = "bpf_intf.rs";

/// Instruction set of a BPF program (`clang -mcpu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// Linux 5.12 and later.
    V3,
    /// Linux 6.6 and later.
    V4,
}

/// Builds `src/bpf/PROGRAM`, from a build script's `main`. Writes `bpf_skel.rs` and `bpf_intf.rs`,
/// the types of `src/bpf/intf.h`, into the crate's `OUT_DIR`; the variable `PLIMSOLL_BPF_HASH` of
/// the compiler is the program's hash.
///
/// # Errors
/// When a file cannot be read or written, or the program does not compile.
///
/// # Safety
/// No other thread may run, because it sets variables of the environment.
pub unsafe fn build(program: &str, instructions: Instructions) -> Result<(), Box<dyn Error>> {
    // Folders: cargo looks at every file in them. Of the headers scx_cargo
    // would name only those that lie beside the program.
    println!("cargo::rerun-if-changed=build.rs");
    for folder in SOURCES {
        println!("cargo::rerun-if-changed={folder}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // SAFETY: no other thread runs, as the caller guarantees.
    unsafe { env::set_var("TMPDIR", "/tmp") };
    let copy = tempfile::Builder::new().prefix("plimsoll-").tempdir()?;
    let here = copy.path().join("crates/plimsoll-scx");
    fs::create_dir_all(&here)?;
    for folder in SOURCES {
        copy_folder(Path::new(folder), &here.join(folder))?;
    }
    // SAFETY: as above.
    unsafe { build_in(&here, program, instructions)? };
    for made in [OBJECT, SHARED_TYPES] {
        fs::copy(made, out.join(made))?;
    }
    let object = fs::read(OBJECT)?;
    println!("cargo::rustc-env=PLIMSOLL_BPF_HASH={:016x}", hash(&object));
    // The skeleton names the object by its path.
    let skeleton = fs::read_to_string(SKELETON)?;
    let object = fs::canonicalize(OBJECT)?;
    fs::write(
        out.join(SKELETON),
        skeleton.replace(name_of(&object)?, name_of(&out.join(OBJECT))?),
    )?;
    Ok(())
}

/// Builds all files in this folder, which is the current one from then on.
///
/// # Safety
/// As of [`build`].
unsafe fn build_in(
    here: &Path,
    program: &str,
    instructions: Instructions,
) -> Result<(), Box<dyn Error>> {
    env::set_current_dir(here)?;
    let mut flags = env::var(EXTRA_CFLAGS).unwrap_or_default();
    // The last one counts.
    flags.push_str(match instructions {
        Instructions::V3 => " -mcpu=v3",
        Instructions::V4 => " -mcpu=v4",
    });
    flags.push_str(" -I../../policy/include -ffile-compilation-dir=/plimsoll");
    // SAFETY: no other thread runs, as the caller guarantees.
    unsafe {
        env::set_var(EXTRA_CFLAGS, flags);
        env::set_var("OUT_DIR", ".");
        env::set_var("PWD", here);
    }
    scx_cargo::BpfBuilder::new()?
        .enable_intf("src/bpf/intf.h", SHARED_TYPES)
        .enable_skel(&format!("src/bpf/{program}"), "bpf")
        .build()?;
    Ok(())
}

/// The FNV-1a hash: the same with every compiler.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn name_of(path: &Path) -> io::Result<&str> {
    path.to_str()
        .ok_or_else(|| io::Error::other(format!("{} is not UTF-8", path.display())))
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
