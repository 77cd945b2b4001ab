//! The machine of a scenario.

use plimsoll_policy::bandwidth::SLICE_DEFAULT_NS;
use plimsoll_policy::{CPUS_MAX, PPM};
use thiserror::Error;

/// CPUs of a host and the cost of work on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Logical CPUs, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Logical CPUs of one core, 1 to 8; divides `cpus`.
    pub threads_per_core: u32,
    /// Logical CPUs that share a last-level cache; a multiple of
    /// `threads_per_core` that divides `cpus`.
    pub cpus_per_llc: u32,
    /// Increase of the duration of work while all other CPUs are busy, in ppm:
    /// 500,000 means 1.5 times as long. Proportional to the number of busy
    /// CPUs. Models contention for shared caches and memory.
    pub contention_ppm: u32,
    /// Speed of a logical CPU while a sibling of its core is busy, in ppm of
    /// its full speed. 100,000 to 1,000,000.
    pub sibling_speed_ppm: u32,
    /// CPU time of a task switch, at most 1 ms. Counts as time of the next
    /// task.
    pub switch_cost_ns: u64,
    /// Groups may save up unused quota.
    pub burst_enabled: bool,
    /// Runtime that a CPU takes from a quota at a time: 100 µs to 1 s.
    pub bandwidth_slice_ns: u64,
}

impl Default for Machine {
    /// Two CPUs that share a cache, on separate cores.
    fn default() -> Self {
        Self {
            cpus: 2,
            threads_per_core: 1,
            cpus_per_llc: 2,
            contention_ppm: 0,
            sibling_speed_ppm: 600_000,
            switch_cost_ns: 2_000,
            burst_enabled: true,
            bandwidth_slice_ns: SLICE_DEFAULT_NS,
        }
    }
}

/// An invalid field of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}, allowed is {allowed}")]
pub struct MachineError {
    /// Name of the field, as in the file.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// Allowed values.
    pub allowed: String,
}

impl Machine {
    /// A machine of `cpus` CPUs that share one cache.
    #[must_use]
    pub fn of_cpus(cpus: u32) -> Self {
        Self {
            cpus,
            cpus_per_llc: cpus,
            ..Self::default()
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), MachineError> {
        let ppm = PPM as u32;
        let whole = |field, value: u32, allowed: String, holds: bool| {
            if holds {
                return Ok(());
            }
            let value = u64::from(value);
            Err(MachineError {
                field,
                value,
                allowed,
            })
        };
        let (cpus, threads, llc) = (self.cpus, self.threads_per_core, self.cpus_per_llc);
        whole(
            "cpus",
            cpus,
            format!("1 to {CPUS_MAX}"),
            (1..=CPUS_MAX).contains(&cpus),
        )?;
        whole(
            "threads-per-core",
            threads,
            format!("1 to 8, a divisor of cpus ({cpus})"),
            (1..=8).contains(&threads) && cpus.is_multiple_of(threads),
        )?;
        whole(
            "cpus-per-llc",
            llc,
            format!("a multiple of threads-per-core ({threads}) that divides cpus ({cpus})"),
            llc > 0 && cpus.is_multiple_of(llc) && llc.is_multiple_of(threads),
        )?;
        whole(
            "contention",
            self.contention_ppm,
            "0% to 1000%".into(),
            self.contention_ppm <= 10 * ppm,
        )?;
        whole(
            "sibling-speed",
            self.sibling_speed_ppm,
            "10% to 100%".into(),
            (ppm / 10..=ppm).contains(&self.sibling_speed_ppm),
        )?;
        if self.switch_cost_ns > plimsoll_policy::NSEC_PER_MSEC {
            return Err(MachineError {
                field: "switch-cost",
                value: self.switch_cost_ns,
                allowed: "0 to 1ms".into(),
            });
        }
        Ok(())
    }
}
