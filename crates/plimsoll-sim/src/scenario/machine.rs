//! The machine of a scenario.

use plimsoll_policy::{CPUS_MAX, PPM};
use thiserror::Error;

/// A host's CPUs and what work costs on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Logical CPUs, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Logical CPUs of one core, 1 to 8; divides `cpus`.
    pub threads_per_core: u32,
    /// Logical CPUs that share a last-level cache; a multiple of
    /// `threads_per_core` that divides `cpus`.
    pub cpus_per_llc: u32,
    /// How much longer work takes while all other CPUs are busy, in ppm: at
    /// 500,000 half as long again. In proportion where some are. Stands for
    /// what CPUs share: caches and memory.
    pub contention_ppm: u32,
    /// What one logical CPU does while a sibling of its core is busy, in ppm of
    /// what it does alone. 100,000 to 1,000,000.
    pub sibling_speed_ppm: u32,
    /// CPU time that a change of tasks takes, at most 1 ms. Counts as the time of the
    /// task that comes.
    pub switch_cost_ns: u64,
}

impl Default for Machine {
    /// Two CPUs that share a cache and nothing else.
    fn default() -> Self {
        Self {
            cpus: 2,
            threads_per_core: 1,
            cpus_per_llc: 2,
            contention_ppm: 0,
            sibling_speed_ppm: 600_000,
            switch_cost_ns: 2_000,
        }
    }
}

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}, allowed is {allowed}")]
pub struct MachineError {
    /// Which field, as in the file.
    pub field: &'static str,
    /// What was given.
    pub value: u64,
    /// What could be.
    pub allowed: String,
}

impl Machine {
    /// A machine of so many CPUs that share one cache.
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
    /// Names the first that is out of range.
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
