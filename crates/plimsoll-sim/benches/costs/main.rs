//! Prints the last results of the other benchmarks as a table, and plots the
//! cost per event of the host simulator.
//!
//! `cargo bench -p plimsoll-sim` measures, prints the table at its end and
//! draws `target/criterion/costs.svg`.

mod curve;

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

/// The last result of one benchmark.
struct Measurement {
    group: String,
    name: String,
    /// Size parameter of the benchmark, if it is a number.
    size: Option<f64>,
    /// Elements (mostly events) in one run.
    elements: f64,
    mean_ns: f64,
    /// Half of the 95 % confidence interval.
    half_ns: f64,
}

impl Measurement {
    fn element_ns(&self) -> f64 {
        self.mean_ns / self.elements
    }
}

/// Folder in which criterion keeps its results.
fn measured() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("criterion")
}

fn json(file: &Path) -> io::Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// Reads the result in a folder; `None` if the benchmark has no throughput.
fn measurement(folder: &Path) -> io::Result<Option<Measurement>> {
    let benchmark = json(&folder.join("benchmark.json"))?;
    let mean = &json(&folder.join("estimates.json"))?["mean"];
    let interval = &mean["confidence_interval"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let value = text(&benchmark["value_str"]);
    let function = text(&benchmark["function_id"]);
    let Some(elements) = benchmark["throughput"]["Elements"].as_f64() else {
        return Ok(None);
    };
    Ok(Some(Measurement {
        group: text(&benchmark["group_id"]),
        size: value.parse().ok(),
        name: format!("{function} {value}").trim().to_owned(),
        elements,
        mean_ns: number(&mean["point_estimate"]),
        half_ns: (number(&interval["upper_bound"]) - number(&interval["lower_bound"])) / 2.0,
    }))
}

/// Collects all results below a folder.
fn collect(folder: &Path, found: &mut Vec<Measurement>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") {
            found.extend(measurement(&path)?);
        } else {
            collect(&path, found)?;
        }
    }
    Ok(())
}

fn print(all: &[Measurement]) {
    println!("| benchmark | | counted | ns each | ± | million per second |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for each in all {
        println!(
            "| {} | {} | {} | {:.3} | {:.1} % | {:.2} |",
            each.group,
            each.name,
            each.elements,
            each.element_ns(),
            100.0 * each.half_ns / each.mean_ns,
            1_000.0 / each.element_ns(),
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = measured();
    let mut all = Vec::new();
    collect(&folder, &mut all)
        .map_err(|error| format!("nothing has been measured in {}: {error}", folder.display()))?;
    all.sort_by(|a, b| {
        let sizes = a.size.partial_cmp(&b.size);
        a.group
            .cmp(&b.group)
            .then(sizes.unwrap_or(std::cmp::Ordering::Equal))
            .then(a.name.cmp(&b.name))
    });
    print(&all);
    let points = |group: &str| -> Vec<(f64, f64)> {
        let of_group = all.iter().filter(|each| each.group == group);
        of_group
            .filter_map(|each| Some((each.size?, each.element_ns())))
            .collect()
    };
    let file = folder.join("costs.svg");
    curve::draw(
        &file,
        &[
            ("CPUs, 40 tasks each", points("host, 40 tasks a CPU")),
            ("tasks, on 8 CPUs", points("host, 8 CPUs")),
        ],
    )?;
    eprintln!("{}", file.display());
    Ok(())
}
