//! Trace of all runs of tasks in the Chrome trace event format, written during
//! the simulation.
//!
//! Each run of the simulator is a process of the trace and each CPU a thread of
//! it. A slice is an interval in which one task ran, named by its group.
//! Throttling is an instant event on its CPU; pools and grants of the headroom
//! controller are counters.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_sim::host::{Event, Span};
use plimsoll_sim::scenario::Run;

use crate::error::{CommandError, Result};
use crate::output;

/// Maximum number of events of a file: viewers take some hundred bytes of
/// memory for each.
const EVENTS_MAX: u64 = 2_000_000;

/// Trace file for all runs.
pub struct TimelineFile {
    path: PathBuf,
    out: BufWriter<File>,
    /// Maximum number of events of each run.
    share: u64,
    runs: u32,
    is_empty: bool,
    written: u64,
    left_out: u64,
    failed: Option<io::Error>,
}

impl TimelineFile {
    /// Creates a file for `runs` runs.
    pub fn create(path: &Path, runs: usize) -> Result<Self> {
        let failed = |error| CommandError::io(doing(path))(error);
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            out,
            share: EVENTS_MAX / (runs as u64).max(1),
            runs: 0,
            is_empty: true,
            written: 0,
            left_out: 0,
            failed: None,
        })
    }

    /// Starts the part of a run.
    pub fn begin(&mut self, run: &Run) -> Timeline<'_> {
        self.runs += 1;
        let process = self.runs;
        let scenario = &run.scenario;
        let groups = scenario.groups.iter().map(|group| group.name.clone());
        let name = run.variant.as_deref().unwrap_or("host");
        let mut timeline = Timeline {
            left: self.share,
            file: self,
            process,
            groups: groups.collect(),
            pending: vec![None; scenario.machine.cpus as usize],
        };
        timeline.describe("process_name", 0, name);
        for cpu in 0..scenario.machine.cpus {
            timeline.describe("thread_name", cpu, &format!("CPU {cpu}"));
        }
        if scenario.warmup_ns > 0 {
            let at = micros(scenario.warmup_ns);
            timeline.write(&format!(
                "{{\"ph\":\"i\",\"s\":\"p\",\"name\":\"measurement starts\",\"pid\":{process},\"tid\":0,\"ts\":{at}}}"
            ));
        }
        timeline
    }

    fn write(&mut self, event: &str) {
        if self.failed.is_some() {
            return;
        }
        let comma: &[u8] = if self.is_empty { b"\n" } else { b",\n" };
        self.is_empty = false;
        self.written += 1;
        let written = self.out.write_all(comma);
        if let Err(error) = written.and_then(|()| self.out.write_all(event.as_bytes())) {
            self.failed = Some(error);
        }
    }

    /// Ends the file, and reports the number of events that were left out.
    pub fn finish(mut self) -> Result<()> {
        let end = self
            .out
            .write_all(b"\n]}\n")
            .and_then(|()| self.out.flush());
        if let Some(error) = self.failed.or(end.err()) {
            return Err(CommandError::io(doing(&self.path))(error));
        }
        if self.left_out > 0 {
            output::tell(&format!(
                "{}: holds {} events; {} later ones were left out, because viewers cannot take \
                 more (a shorter --duration or one --variant shows all)",
                self.path.display(),
                self.written,
                self.left_out
            ));
        }
        Ok(())
    }
}

fn doing(path: &Path) -> String {
    format!("trace-out: cannot write {}", path.display())
}

/// Part of one run.
pub struct Timeline<'a> {
    file: &'a mut TimelineFile,
    /// Number of events left for it.
    left: u64,
    process: u32,
    groups: Vec<String>,
    /// The last span of each CPU, which the next span may extend.
    pending: Vec<Option<Span>>,
}

impl Timeline<'_> {
    /// Names a process or thread of the trace.
    fn describe(&mut self, what: &str, thread: u32, name: &str) {
        let process = self.process;
        // Serialising a string cannot fail.
        let name = serde_json::Value::from(name);
        self.file.write(&format!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":{name}}}}}"
        ));
    }

    fn write(&mut self, event: &str) {
        if self.left == 0 {
            self.file.left_out += 1;
            return;
        }
        self.left -= 1;
        self.file.write(event);
    }

    fn group(&self, index: u32) -> &str {
        self.groups.get(index as usize).map_or("?", String::as_str)
    }

    /// Records a run of a task.
    pub fn ran(&mut self, span: &Span) {
        let Some(slot) = self.pending.get_mut(span.cpu as usize) else {
            return;
        };
        match slot {
            Some(last)
                if last.task == span.task
                    && last.batch == span.batch
                    && last.end_ns == span.start_ns =>
            {
                last.end_ns = span.end_ns;
            }
            _ => {
                if let Some(last) = slot.replace(*span) {
                    self.slice(&last);
                }
            }
        }
    }

    fn slice(&mut self, span: &Span) {
        if span.end_ns <= span.start_ns {
            return;
        }
        let event = format!(
            "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"task\":{}}}}}",
            self.group(span.group),
            if span.batch { "batch" } else { "normal" },
            self.process,
            span.cpu,
            micros(span.start_ns),
            micros(span.end_ns - span.start_ns),
            span.task
        );
        self.write(&event);
    }

    /// Records an event.
    pub fn happened(&mut self, now_ns: u64, event: Event) {
        let (process, at) = (self.process, micros(now_ns));
        let mark = |group: &str, cpu: u32, what: &str| {
            format!(
                "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"{group} {what}\",\"pid\":{process},\"tid\":{cpu},\"ts\":{at}}}"
            )
        };
        let counter = |name: &str, ns: u64| {
            let ms = micros(ns / 1_000);
            format!(
                "{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{process},\"tid\":0,\"ts\":{at},\"args\":{{\"ms\":{ms}}}}}"
            )
        };
        let text = match event {
            Event::Throttled { group, cpu } => mark(self.group(group), cpu, "throttled"),
            Event::Unthrottled { group, cpu } => mark(self.group(group), cpu, "unthrottled"),
            Event::Refilled { group, runtime_ns } => {
                counter(&format!("pool of {}", self.group(group)), runtime_ns)
            }
            Event::Granted { grant_ns } => counter("granted to batch work", grant_ns),
        };
        self.write(&text);
    }
}

impl Drop for Timeline<'_> {
    /// Writes the pending spans.
    fn drop(&mut self) {
        for last in std::mem::take(&mut self.pending).into_iter().flatten() {
            self.slice(&last);
        }
    }
}

/// Nanoseconds as microseconds, exactly.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::scenario::{Overrides, ScenarioFile};
    use serde_json::Value;

    use super::*;

    fn run(variant: &str) -> Run {
        let text = "duration = '2s'\nmachine.cpus = 2\n\
                    [[group]]\nname = 'a'\n[[group.workload]]\nkind = 'burn'\n";
        let file = ScenarioFile::parse("s", text, Path::new(""), Overrides::default());
        Run {
            variant: Some(variant.into()),
            ..file.unwrap().runs.remove(0)
        }
    }

    fn span(cpu: u32, task: u32, start_ns: u64, end_ns: u64) -> Span {
        Span {
            cpu,
            group: 0,
            task,
            start_ns,
            end_ns,
            batch: task == 7,
        }
    }

    fn events(path: &Path, phase: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let all = trace["traceEvents"].as_array().unwrap().clone();
        all.into_iter().filter(|e| e["ph"] == phase).collect()
    }

    #[test]
    fn trace_is_json_and_adjacent_spans_of_a_task_are_one_slice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let mut file = TimelineFile::create(&path, 2).unwrap();
        for name in ["one \"quoted\"", "two"] {
            let mut timeline = file.begin(&run(name));
            timeline.ran(&span(0, 1, 0, 1_000));
            timeline.ran(&span(1, 7, 500, 2_500));
            timeline.ran(&span(0, 1, 1_000, 1_234));
            timeline.ran(&span(0, 2, 1_234, 2_000));
            timeline.happened(2_000, Event::Throttled { group: 0, cpu: 1 });
            let grant_ns = 1_500_000;
            timeline.happened(3_000, Event::Granted { grant_ns });
        }
        file.finish().unwrap();
        let slices = events(&path, "X");
        assert_eq!(slices.len(), 6);
        let first = &slices[0];
        assert_eq!(
            (&first["name"], &first["dur"]),
            (&"a".into(), &1.234.into())
        );
        let batch: Vec<_> = slices.iter().filter(|s| s["cat"] == "batch").collect();
        assert_eq!((batch.len(), &batch[0]["tid"]), (2, &1.into()));
        assert_eq!(events(&path, "C")[0]["args"]["ms"], 1.5);
        let marks = events(&path, "i");
        assert!(marks.iter().any(|mark| mark["name"] == "a throttled"));
        let names = events(&path, "M");
        assert_eq!(names[0]["args"]["name"], "one \"quoted\"");
        assert_eq!(names[5]["args"]["name"], "CPU 1");
    }

    #[test]
    fn events_are_limited_per_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let mut file = TimelineFile::create(&path, 2).unwrap();
        file.share = 3;
        for name in ["one", "two"] {
            let mut timeline = file.begin(&run(name));
            (0..10).for_each(|n| timeline.ran(&span(0, n, u64::from(n), u64::from(n) + 1)));
        }
        // One instant event each for the end of the warm-up.
        assert_eq!(file.left_out, 16);
        file.finish().unwrap();
        let slices = events(&path, "X");
        let of = |run: u64| slices.iter().filter(|s| s["pid"] == run).count();
        assert_eq!((of(1), of(2)), (2, 2));
    }

    #[test]
    fn unwritable_file_is_refused_at_once() {
        let error = TimelineFile::create(Path::new("/no/such/t.json"), 1).err();
        let text = error.unwrap().to_string();
        assert!(
            text.starts_with("trace-out: cannot write /no/such/t.json: "),
            "{text}"
        );
    }
}
