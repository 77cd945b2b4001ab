//! Direct port of the source's pseudo-code, in floating point: the baseline of
//! the simulator's tests and benchmarks.
//!
//! Names are the source's. Open points are decided as in the simulator. Tokens
//! are plain numbers; the policy core is not used.

/// The source's simulation: equal groups.
pub struct Plain {
    quota: f64,
    /// Capacity of the token buffer.
    buffer: f64,
    needs: Vec<f64>,
    tokens: Vec<f64>,
    free_cpu_use: Vec<f64>,
    /// Periods since the deadline was last met.
    broken: u64,
    /// The WCET of each period.
    pub wcet_list: Vec<u64>,
}

impl Plain {
    /// Creates `m` groups with burst `b`, in quotas; `b` may be infinite.
    pub fn new(m: usize, quota: f64, b: f64) -> Self {
        Self {
            quota,
            buffer: b * quota,
            needs: vec![0.0; m],
            tokens: vec![0.0; m],
            free_cpu_use: vec![0.0; m],
            broken: 0,
            wcet_list: Vec::new(),
        }
    }

    /// Tolerance below which a value counts as 0, to absorb rounding.
    fn nothing(&self) -> f64 {
        1e-9 * self.quota
    }

    /// CPU time beyond its quota that group `j` may use.
    fn wants(&self, j: usize) -> f64 {
        self.needs[j].min(self.tokens[j])
    }

    /// Distributes free CPU fairly among the groups with needs and tokens left.
    /// Returns the CPU that remains, and whether no group wants more.
    fn distribute_free_cpu(&mut self, mut free_cpu: f64) -> (f64, bool) {
        self.free_cpu_use.fill(0.0);
        loop {
            let open: Vec<usize> = (0..self.needs.len())
                .filter(|&j| self.wants(j) > self.free_cpu_use[j] + self.nothing())
                .collect();
            if open.is_empty() {
                return (free_cpu, true);
            }
            if free_cpu < self.nothing() {
                return (0.0, false);
            }
            let share = free_cpu / open.len() as f64;
            for j in open {
                let gets = share.min(self.wants(j) - self.free_cpu_use[j]);
                self.free_cpu_use[j] += gets;
                free_cpu -= gets;
            }
        }
    }

    /// Runs a period with new needs, and returns whether it met its deadline.
    pub fn period(&mut self, new_needs: &[f64]) -> bool {
        let mut free_cpu = 0.0;
        for (j, new) in new_needs.iter().take(self.needs.len()).enumerate() {
            self.needs[j] += new;
            if self.needs[j] <= self.quota {
                let rest = self.quota - self.needs[j];
                free_cpu += rest;
                self.tokens[j] = (self.tokens[j] + rest).min(self.buffer);
                self.needs[j] = 0.0;
            } else {
                self.needs[j] -= self.quota;
            }
        }
        let (free_cpu, is_done) = self.distribute_free_cpu(free_cpu);
        for (j, used) in self.free_cpu_use.iter().enumerate() {
            self.needs[j] -= used;
            self.tokens[j] -= used;
        }
        let is_met = free_cpu > 0.0 || is_done;
        self.broken += 1;
        if is_met {
            self.wcet_list.extend((1..=self.broken).rev());
            self.broken = 0;
        }
        is_met
    }
}
