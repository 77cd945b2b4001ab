//! Owners of timers, and the numbers of their timers.

/// The owner of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The headroom controller.
    Grain,
    Cpu(u32),
    Task(u32),
    /// The next request of a workload.
    Arrival(u32),
    /// A group's period.
    Period(u32),
    /// The bucket of a capped group.
    Cap(u32),
    /// The windows of per-CPU limits.
    Window,
    /// The comparison of usage rates with soft caps.
    Rates,
    /// A server slice of batch work behind normal work.
    Turn,
    /// The search of idle CPUs for waiting work.
    Balance,
    WarmUp,
}

/// Numbering of the timers: owners of a kind have consecutive numbers. Of
/// timers that expire at the same time, the lowest number is served first: the
/// headroom controller hands out the next grain before the last one ends on any
/// CPU.
#[derive(Debug)]
pub(super) struct Owners {
    tasks: u32,
    arrivals: u32,
    periods: u32,
    caps: u32,
    singles: u32,
}

impl Owners {
    const GRAIN: u32 = 0;
    const CPUS: u32 = 1;
    const SINGLES: [Owner; 5] = [
        Owner::Window,
        Owner::Rates,
        Owner::Turn,
        Owner::Balance,
        Owner::WarmUp,
    ];

    pub(super) fn new(cpus: u32, tasks: usize, works: usize, groups: usize) -> Self {
        let first_task = Self::CPUS + cpus;
        let arrivals = first_task + tasks as u32;
        let periods = arrivals + works as u32;
        let caps = periods + groups as u32;
        Self {
            tasks: first_task,
            arrivals,
            periods,
            caps,
            singles: caps + groups as u32,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.singles as usize + Self::SINGLES.len()
    }

    pub(super) fn of(&self, number: u32) -> Owner {
        if number == Self::GRAIN {
            Owner::Grain
        } else if number < self.tasks {
            Owner::Cpu(number - Self::CPUS)
        } else if number < self.arrivals {
            Owner::Task(number - self.tasks)
        } else if number < self.periods {
            Owner::Arrival(number - self.arrivals)
        } else if number < self.caps {
            Owner::Period(number - self.periods)
        } else if number < self.singles {
            Owner::Cap(number - self.caps)
        } else {
            Self::SINGLES[(number - self.singles) as usize]
        }
    }

    pub(super) fn grain(&self) -> u32 {
        Self::GRAIN
    }

    pub(super) fn cpu(&self, cpu: u32) -> u32 {
        Self::CPUS + cpu
    }

    pub(super) fn task(&self, task: u32) -> u32 {
        self.tasks + task
    }

    pub(super) fn arrival(&self, work: u32) -> u32 {
        self.arrivals + work
    }

    pub(super) fn period(&self, group: u32) -> u32 {
        self.periods + group
    }

    pub(super) fn cap(&self, group: u32) -> u32 {
        self.caps + group
    }

    pub(super) fn window(&self) -> u32 {
        self.singles
    }

    pub(super) fn rates(&self) -> u32 {
        self.singles + 1
    }

    pub(super) fn server(&self) -> u32 {
        self.singles + 2
    }

    pub(super) fn balance(&self) -> u32 {
        self.singles + 3
    }

    pub(super) fn warm_up(&self) -> u32 {
        self.singles + 4
    }
}
