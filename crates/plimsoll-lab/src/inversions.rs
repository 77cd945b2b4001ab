//! Counts inversions in a trace of the kernel's scheduler: picks of batch work while normal work
//! was runnable on that CPU.
//!
//! The trace is the text of a tracefs instance with the events `sched_switch`, `sched_wakeup` and
//! `sched_migrate_task`. Prefixes of the threads' names (`comm`) distinguish batch and normal
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inversions {
    /// Picks of batch work while normal work was runnable on that CPU, without one that lasts
    /// until the end of the trace.
    pub picks: u64,
    /// Total run time of batch work after these picks.
    pub total: Duration,
    /// Longest of these run times.
    pub longest: Duration,
    /// Number of lost events; the figures are valid only if it is 0.
    pub lost_events: u64,
}

/// Counts the inversions in `trace`. `batch` and `normal` are prefixes of the names of batch and
/// normal threads. Other lines than events of the scheduler are ignored.
#[must_use]
pub fn count(trace: &str, batch: &str, normal: &str) -> Inversions {
    let mut found = Inversions {
        lost_events: lost_events(trace),
        ..Inversions::default()
    };
    let mut runnable = Runnable::default();
    let mut open: BTreeMap<u32, Duration> = BTreeMap::new();
    for event in events(trace) {
        match event.what {
            What::Wakeup { comm, pid, cpu } if comm.starts_with(normal) => {
                runnable.add(cpu, pid);
            }
            What::Wakeup { .. } => {}
            What::Migrate { pid, from, to } => {
                if runnable.remove(from, pid) {
                    runnable.add(to, pid);
                }
            }
            What::Switch(switch) => {
                if let Some(since) = open.remove(&event.cpu) {
                    let lasted = event.time.saturating_sub(since);
                    found.picks += 1;
                    found.total += lasted;
                    found.longest = found.longest.max(lasted);
                }
                runnable.remove_everywhere(switch.next_pid);
                if switch.prev_comm.starts_with(normal) && switch.prev_state.starts_with('R') {
                    runnable.add(event.cpu, switch.prev_pid);
                }
                if switch.next_comm.starts_with(batch) && runnable.is_any_on(event.cpu) {
                    open.insert(event.cpu, event.time);
                }
            }
        }
    }
    found
}

/// Normal threads that wait for a CPU, by the CPU whose queue they are in.
#[derive(Default)]
struct Runnable(BTreeMap<u32, BTreeSet<u32>>);

impl Runnable {
    fn add(&mut self, cpu: u32, pid: u32) {
        self.0.entry(cpu).or_default().insert(pid);
    }

    fn remove(&mut self, cpu: u32, pid: u32) -> bool {
        self.0.get_mut(&cpu).is_some_and(|pids| pids.remove(&pid))
    }

    fn remove_everywhere(&mut self, pid: u32) {
        for pids in self.0.values_mut() {
            pids.remove(&pid);
        }
    }

    fn is_any_on(&self, cpu: u32) -> bool {
        self.0.get(&cpu).is_some_and(|pids| !pids.is_empty())
    }
}

struct Event<'a> {
    time: Duration,
    cpu: u32,
    what: What<'a>,
}

enum What<'a> {
    Wakeup { comm: &'a str, pid: u32, cpu: u32 },
    Migrate { pid: u32, from: u32, to: u32 },
    Switch(Switch<'a>),
}

struct Switch<'a> {
    prev_comm: &'a str,
    prev_pid: u32,
    prev_state: &'a str,
    next_comm: &'a str,
    next_pid: u32,
}

/// The events in the order of their times; those of one time in the order of the trace.
fn events(trace: &str) -> Vec<Event<'_>> {
    let mut found: Vec<_> = trace.lines().filter_map(event).collect();
    found.sort_by_key(|event| event.time);
    found
}

/// Reads `COMM-PID [CPU] FLAGS SECONDS: KIND: TEXT`.
fn event(line: &str) -> Option<Event<'_>> {
    // The name may contain a bracket.
    line.match_indices(" [")
        .find_map(|(at, bracket)| event_after(line.get(at + bracket.len()..)?))
}

/// Reads `CPU] FLAGS SECONDS: KIND: TEXT`.
fn event_after(text: &str) -> Option<Event<'_>> {
    let (cpu, text) = text.split_once("] ")?;
    let cpu = cpu.parse().ok()?;
    let (_flags, text) = text.split_once(' ')?;
    let (seconds, text) = text.trim_start().split_once(": ")?;
    let time = time(seconds)?;
    let (kind, text) = text.split_once(": ")?;
    let what = match kind {
        "sched_wakeup" => wakeup(text),
        "sched_migrate_task" => migrate(text),
        "sched_switch" => switch(text).map(What::Switch),
        _ => None,
    }?;
    Some(Event { time, cpu, what })
}

/// Reads seconds with up to nine decimals, exactly.
fn time(text: &str) -> Option<Duration> {
    let (seconds, decimals) = text.split_once('.')?;
    if decimals.len() > 9 {
        return None;
    }
    let nanos = format!("{decimals:0<9}").parse().ok()?;
    Some(Duration::new(seconds.parse().ok()?, nanos))
}

/// Reads `comm=COMM pid=PID prio=PRIO target_cpu=CPU`.
fn wakeup(text: &str) -> Option<What<'_>> {
    let (comm, rest) = text.strip_prefix("comm=")?.rsplit_once(" pid=")?;
    Some(What::Wakeup {
        comm,
        pid: number(rest)?,
        cpu: number(rest.split_once(" target_cpu=")?.1)?,
    })
}

/// Reads `comm=COMM pid=PID prio=PRIO orig_cpu=CPU dest_cpu=CPU`.
fn migrate(text: &str) -> Option<What<'_>> {
    let (_, rest) = text.rsplit_once(" pid=")?;
    Some(What::Migrate {
        pid: number(rest)?,
        from: number(rest.split_once(" orig_cpu=")?.1)?,
        to: number(rest.split_once(" dest_cpu=")?.1)?,
    })
}

/// Reads `prev_comm=COMM prev_pid=PID prev_prio=PRIO prev_state=STATE ==> next_comm=COMM
/// next_pid=PID next_prio=PRIO`.
fn switch(text: &str) -> Option<Switch<'_>> {
    let (prev, next) = text.strip_prefix("prev_comm=")?.split_once(" ==> ")?;
    let (prev_comm, rest) = prev.rsplit_once(" prev_pid=")?;
    let (next_comm, next_rest) = next.strip_prefix("next_comm=")?.rsplit_once(" next_pid=")?;
    Some(Switch {
        prev_comm,
        prev_pid: number(rest)?,
        prev_state: rest.split_once(" prev_state=")?.1,
        next_comm,
        next_pid: number(next_rest)?,
    })
}

/// Reads the number that `text` begins with.
fn number(text: &str) -> Option<u32> {
    text.split(' ').next()?.parse().ok()
}

/// Counts missing events: the trace begins with `# entries-in-buffer/entries-written: 205/1205`,
/// and contains lines `CPU:1 [LOST 12 EVENTS]` if the reader was too slow.
fn lost_events(trace: &str) -> u64 {
    let of_line = |line: &str| -> Option<u64> {
        if let Some(rest) = line.strip_prefix("# entries-in-buffer/entries-written: ") {
            let (kept, written) = rest.split(' ').next()?.split_once('/')?;
            let written: u64 = written.parse().ok()?;
            return Some(written.saturating_sub(kept.parse().ok()?));
        }
        let lost = line.strip_prefix("CPU:")?.split_once(" [LOST ")?.1;
        // Without a number the count is unknown.
        Some(lost.split(' ').next()?.parse().unwrap_or(1))
    };
    trace.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 9/9   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
";

    fn count_in(events: &str) -> Inversions {
        count(&format!("{HEAD}{events}"), "burn", "load-worker")
    }

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn batch_work_picked_before_runnable_normal_work_is_counted_with_its_time() {
        let found = count_in(
            "\
            burner-0-101     [000] d.h4.    10.000100: sched_wakeup: comm=load-worker-1 pid=7 prio=120 target_cpu=000
            burner-0-101     [000] d..2.    10.000200: sched_switch: prev_comm=burner-0 prev_pid=101 prev_prio=120 prev_state=R ==> next_comm=burner-1 next_pid=102 next_prio=120
            burner-1-102     [000] d..2.    10.004200: sched_switch: prev_comm=burner-1 prev_pid=102 prev_prio=120 prev_state=R ==> next_comm=load-worker-1 next_pid=7 next_prio=120
       load-worker-1-7       [000] d..2.    10.004500: sched_switch: prev_comm=load-worker-1 prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=burner-0 next_pid=101 next_prio=120
            burner-0-101     [000] d..2.    10.005000: sched_switch: prev_comm=burner-0 prev_pid=101 prev_prio=120 prev_state=R ==> next_comm=load-worker-1 next_pid=7 next_prio=120
       load-worker-1-7       [000] d..2.    10.005300: sched_switch: prev_comm=load-worker-1 prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=burner-0 next_pid=101 next_prio=120
",
        );
        assert_eq!(found.picks, 2);
        assert_eq!(found.total, micros(4_500));
        assert_eq!(found.longest, micros(4_000));
        assert_eq!(found.lost_events, 0);
    }

    #[test]
    fn normal_work_on_another_cpu_does_not_count_until_it_is_moved() {
        let found = count_in(
            "\
          <idle>-0       [001] dNh4.    20.000000: sched_wakeup: comm=load-worker-2 pid=8 prio=120 target_cpu=001
          <idle>-0       [000] d..2.    20.000010: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=burner-0 next_pid=101 next_prio=120
            burner-0-101     [000] d..3.    20.000020: sched_migrate_task: comm=load-worker-2 pid=8 prio=120 orig_cpu=1 dest_cpu=0
            burner-0-101     [000] d..2.    20.000030: sched_switch: prev_comm=burner-0 prev_pid=101 prev_prio=120 prev_state=R ==> next_comm=burner-1 next_pid=102 next_prio=120
          <idle>-0       [001] d..2.    20.000040: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=burner-2 next_pid=103 next_prio=120
            burner-1-102     [000] d..2.    20.000090: sched_switch: prev_comm=burner-1 prev_pid=102 prev_prio=120 prev_state=R ==> next_comm=load-worker-2 next_pid=8 next_prio=120
",
        );
        assert_eq!((found.picks, found.total), (1, micros(60)));
    }

    #[test]
    fn pick_without_an_end_is_not_counted() {
        let found = count_in(
            "\
            burner-0-101     [000] d.h4.    10.000100: sched_wakeup: comm=load-worker-1 pid=7 prio=120 target_cpu=000
            burner-0-101     [000] d..2.    10.000200: sched_switch: prev_comm=burner-0 prev_pid=101 prev_prio=120 prev_state=R ==> next_comm=burner-1 next_pid=102 next_prio=120
",
        );
        assert_eq!(found.picks, 0);
    }

    #[test]
    fn events_are_taken_in_the_order_of_their_times_whatever_the_names_and_other_lines() {
        let found = count(
            "\
[000]

x-1 [000] d..2. 1.5: sched_switch: nothing
x-1 [zzz] d..2. 1.5: sched_wakeup: comm=load-worker [0] pid=7 target_cpu=0
x-1 [000] d..2. now: sched_wakeup: comm=load-worker [0] pid=7 target_cpu=0
x-1 [000] d..2. 1.5: sched_wakeup: comm=load-worker [0] pid=x target_cpu=0
x-1 [000] d..2. 1.5: tick_stop: success=1
 a [1] b-9       [000] d..2.    10.000200: sched_switch: prev_comm=a [1] b prev_pid=9 prev_prio=120 prev_state=R ==> next_comm=burn z next_pid=102 next_prio=120
  burn z-102     [000] d..2.    10.000300: sched_switch: prev_comm=burn z prev_pid=102 prev_prio=120 prev_state=R ==> next_comm=load-worker [0] x next_pid=7 next_prio=120
 a [1] b-9       [001] d.h4.    10.000100: sched_wakeup: comm=load-worker [0] x pid=7 prio=120 target_cpu=000
",
            "burn",
            "load-worker [",
        );
        assert_eq!((found.picks, found.total), (1, micros(100)));
    }

    #[test]
    fn lost_events_are_counted() {
        let text = "# entries-in-buffer/entries-written: 205/1205   #P:2\n\
                    CPU:1 [LOST 12 EVENTS]\nCPU:0 [LOST EVENTS]\n";
        assert_eq!(count(text, "b", "n").lost_events, 1_013);
    }
}
