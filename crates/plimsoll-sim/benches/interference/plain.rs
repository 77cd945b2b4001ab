//! The source's pseudo-code as it stands, in floating point: what the
//! simulator is compared with, in its tests and its benchmarks.
//!
//! The names are the source's. What it leaves open is settled as in the
//! simulator; the tokens are a number, and no core is asked.

/// The source's simulation: equal groups.
pub struct Plain {
    quota: f64,
    /// The most tokens that a group can gather.
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
    /// `m` groups. `b`: burst in quotas, may be infinite.
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

    /// Less than this is what rounding leaves of nothing.
    fn nothing(&self) -> f64 {
        1e-9 * self.quota
    }

    /// What a group may use beyond its quota.
    fn wants(&self, j: usize) -> f64 {
        self.needs[j].min(self.tokens[j])
    }

    /// Fairly among groups with more needs and burst buffer. Returns what is
    /// left, and whether nobody wants more.
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
