//! The BPF program: loading it, its maps, and its parts that user space runs.

use libbpf_rs::{Map, MapCore as _, Object, ObjectBuilder, ProgramInput};

use crate::GuardError;

/// The program `src/bpf/guard.bpf.c`.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bpf.bpf.o"));

/// Prepares the timers of a CPU.
pub(crate) const PREPARE: &str = "plimsoll_guard_prepare";
/// Begins a move, if the task may still be moved.
pub(crate) const BEGIN_MOVE: &str = "plimsoll_guard_begin_move";
/// Finds a task that a move has left bound, by its present id.
pub(crate) const END_MOVE: &str = "plimsoll_guard_end_move";

pub(crate) fn load() -> Result<Object, GuardError> {
    let mut open = ObjectBuilder::default()
        .open_memory(PROGRAM)
        .map_err(GuardError::Load)?;
    let nr_cpus = libbpf_rs::num_possible_cpus().map_err(GuardError::Load)?;
    let nr_cpus = u32::try_from(nr_cpus).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match &*name {
            "watched" | "wait_timers" | "rings" => {
                map.set_max_entries(nr_cpus).map_err(GuardError::Load)?;
            }
            // This section has nothing but `nr_cpus`.
            name if name.ends_with(".rodata") => {
                let value = map.initial_value_mut().into_iter().flatten();
                let bytes = nr_cpus.to_ne_bytes();
                value.zip(bytes).for_each(|(to, byte)| *to = byte);
            }
            _ => (),
        }
    }
    open.load().map_err(GuardError::Load)
}

pub(crate) fn map<'o>(object: &'o Object, name: &str) -> libbpf_rs::Result<Map<'o>> {
    let found = object.maps().find(|map| map.name() == name);
    found.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(libc::ENOENT))
}

/// Runs a part of the program that is for user space.
///
/// # Errors
/// When the part returns an error, which is negative.
pub(crate) fn run(object: &Object, name: &str, argument: &mut [u8]) -> libbpf_rs::Result<()> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(libc::ENOENT))?;
    let input = ProgramInput {
        context_in: Some(argument),
        ..ProgramInput::default()
    };
    match program.test_run(input)?.return_value.cast_signed() {
        0 => Ok(()),
        error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
    }
}
