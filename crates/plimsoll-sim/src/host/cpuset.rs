//! Sets of CPUs, searched a word at a time.

/// A set of CPUs `0 .. len`.
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

    pub(super) fn full(len: u32) -> Self {
        let mut all = Self::new(len);
        all.fill();
        all
    }

    /// Makes every CPU a member.
    pub(super) fn fill(&mut self) {
        for (word, position) in self.words.iter_mut().zip(0..) {
            let members = (self.len - position * 64).min(64);
            *word = u64::MAX >> (64 - members);
        }
        self.count = self.len;
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

    /// First member in `cpu .. end` that is also in `also`, if that is given.
    fn first_between(&self, cpu: u32, end: u32, also: Option<&Self>) -> Option<u32> {
        let mut from = cpu;
        while from < end {
            let index = (from / 64) as usize;
            let also = also.map_or(u64::MAX, |also| also.words[index]);
            let word = self.words[index] & also & (u64::MAX << (from % 64));
            if word != 0 {
                let found = from / 64 * 64 + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            from = (from / 64 + 1) * 64;
        }
        None
    }

    /// First member from `cpu` on, wrapping around within `start .. end`; `cpu`
    /// must lie in that range.
    pub(super) fn next_within(&self, cpu: u32, start: u32, end: u32) -> Option<u32> {
        self.next_of_both(None, cpu, start, end)
    }

    /// As [`next_within`](Self::next_within), but only members that are also in
    /// `also`, a set of the same length.
    pub(super) fn next_of_both(
        &self,
        also: Option<&Self>,
        cpu: u32,
        start: u32,
        end: u32,
    ) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.first_between(cpu, end, also)
            .or_else(|| self.first_between(start, cpu, also))
    }

    /// First member from `cpu` on, wrapping around over all CPUs.
    pub(super) fn next_from(&self, cpu: u32) -> Option<u32> {
        self.next_within(cpu, 0, self.len)
    }
}
