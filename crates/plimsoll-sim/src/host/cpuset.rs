//! Sets of CPUs, searched a word at a time.

/// CPUs `0 .. len`.
#[derive(Debug, Clone)]
pub(super) struct CpuSet {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl CpuSet {
    pub(super) fn new(len: u32) -> Self {
        Self {
            words: vec![0; len.div_ceil(64) as usize],
            len,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn contains(&self, cpu: u32) -> bool {
        self.words[(cpu / 64) as usize] & (1 << (cpu % 64)) != 0
    }

    pub(super) fn set(&mut self, cpu: u32, member: bool) {
        if self.contains(cpu) == member {
            return;
        }
        self.words[(cpu / 64) as usize] ^= 1 << (cpu % 64);
        if member {
            self.count += 1;
        } else {
            self.count -= 1;
        }
    }

    /// The first member from `cpu` on that is below `end`.
    fn first_between(&self, cpu: u32, end: u32) -> Option<u32> {
        let mut from = cpu;
        while from < end {
            let word = self.words[(from / 64) as usize] & (u64::MAX << (from % 64));
            if word != 0 {
                let found = from / 64 * 64 + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            from = (from / 64 + 1) * 64;
        }
        None
    }

    /// The first member from `cpu` on, round within `start .. end`, which
    /// `cpu` is in.
    pub(super) fn next_within(&self, cpu: u32, start: u32, end: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.first_between(cpu, end)
            .or_else(|| self.first_between(start, cpu))
    }

    /// The first member from `cpu` on, round all CPUs.
    pub(super) fn next_from(&self, cpu: u32) -> Option<u32> {
        self.next_within(cpu, 0, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_member_is_found_round_the_end_and_within_bounds() {
        let mut set = CpuSet::new(200);
        assert_eq!(set.next_from(0), None);
        for cpu in [3, 64, 199] {
            set.set(cpu, true);
            set.set(cpu, true);
        }
        assert_eq!(set.count(), 3);
        assert_eq!(set.next_from(0), Some(3));
        assert_eq!(set.next_from(4), Some(64));
        assert_eq!(set.next_from(65), Some(199));
        assert_eq!(set.next_within(10, 8, 64), None);
        assert_eq!(set.next_within(150, 64, 190), Some(64));
        set.set(199, false);
        assert_eq!(set.next_from(65), Some(3));
        assert_eq!(set.count(), 2);
    }
}
