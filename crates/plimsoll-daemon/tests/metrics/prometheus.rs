//! A real Prometheus (`make audit`), what is in `deploy/` for it, and the dashboard.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_daemon::metrics::openmetrics;
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{self, Served};
use crate::wait::{Looks, wait_until};
use crate::{http, tools};

/// Window for the rates of the dashboard.
const WINDOW: &str = "20s";

/// A server of metrics whose state is a second older each time.
fn serve() -> Served {
    let seconds = AtomicU64::new(100);
    Served::start(move || openmetrics(fixture::state(seconds.fetch_add(1, Ordering::SeqCst))))
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A Prometheus that reads a daemon each second.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
    _daemon: Served,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Prometheus {
    fn start() -> Self {
        let daemon = serve();
        let folder = tempfile::tempdir().unwrap();
        write_configuration(folder.path(), daemon.address);
        let (process, address) = start_process(folder.path());
        Self {
            process,
            address,
            folder,
            _daemon: daemon,
        }
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
        let mut looks = Looks::begin();
        while !is_so() {
            assert!(looks.again(), "waited in vain: {what}: {}", log());
        }
    }

    /// Returns the `data` of an answer of Prometheus's API.
    fn ask(&self, target: &str) -> Value {
        let answer = http::get(self.address, &format!("/api/v1/{target}"));
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["status"], "success", "{target}: {body}");
        body["data"].clone()
    }

    /// Returns the present result of a query.
    fn query(&self, expression: &str) -> Vec<Value> {
        let expression = http::percent_encoded(expression);
        let data = self.ask(&format!("query?query={expression}"));
        data["result"].as_array().unwrap().clone()
    }
}

fn write_configuration(folder: &Path, target: SocketAddr) {
    let configuration = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n  - job_name: plimsoll\n    static_configs:\n      - targets: ['{target}']\n"
    );
    fs::write(folder.join("prometheus.yml"), configuration).unwrap();
}

/// Starts Prometheus at a free port, which another process may take meanwhile.
fn start_process(folder: &Path) -> (Child, SocketAddr) {
    for _ in 0..5 {
        let address = free_address();
        let log = File::create(folder.join("log")).unwrap();
        let mut process = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .args([
                "--storage.tsdb.path=data",
                "--storage.tsdb.retention.time=1h",
            ])
            .arg("--log.level=warn")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut is_ready = false;
        wait_until("Prometheus is ready or has ended", || {
            let answer = http::try_request(address, "GET", "/-/ready", "");
            is_ready = answer.is_some_and(|answer| answer.status == 200);
            is_ready || process.try_wait().unwrap().is_some()
        });
        if is_ready {
            return (process, address);
        }
        // The process may have ended already.
        let _ = process.kill();
        process.wait().unwrap();
    }
    panic!("{}", fs::read_to_string(folder.join("log")).unwrap());
}

fn alert_names() -> BTreeSet<String> {
    let rules = fs::read_to_string(tools::deploy().join("prometheus/plimsoll-rules.yml")).unwrap();
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
#[ignore = "make audit: needs a real Prometheus"]
fn promtool_takes_the_rules_their_tests_and_the_example() {
    tools::require();
    let file = |name: &str| tools::deploy().join("prometheus").join(name);
    let check = |arguments: &[&str], name: &str| {
        let file = file(name);
        let arguments: Vec<_> = [arguments, &[file.to_str().unwrap()]].concat();
        tools::promtool(&arguments);
    };
    check(&["check", "rules", "--lint-fatal"], "plimsoll-rules.yml");
    check(&["test", "rules"], "plimsoll-rules-test.yml");
    check(&["check", "config", "--lint-fatal"], "plimsoll-scrape.yml");
    let tests = fs::read_to_string(file("plimsoll-rules-test.yml")).unwrap();
    for name in alert_names() {
        assert!(tests.contains(&name), "{name} is not tested");
    }
}

fn dashboard() -> Value {
    let file = tools::deploy().join("grafana/plimsoll.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// An expression as Grafana would send it with everything selected.
fn substituted(expression: &str) -> String {
    let substituted = expression
        .replace("$__rate_interval", WINDOW)
        .replace("$instance", ".*")
        .replace("$group", ".*");
    assert!(!substituted.contains('$'), "{expression}");
    substituted
}

#[test]
fn every_panel_of_the_dashboard_is_explained_and_takes_the_chosen_source() {
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        assert!(!text(panel, "title").is_empty() && !text(panel, "description").is_empty());
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty());
        for source in targets.iter().chain([panel]) {
            let uid = text(&source["datasource"], "uid");
            assert_eq!(uid, "${datasource}", "{}", text(panel, "title"));
        }
    }
}

#[test]
#[ignore = "make audit: needs a real Prometheus"]
fn every_series_is_read_and_every_panel_of_the_dashboard_shows_data() {
    tools::require();
    let prometheus = Prometheus::start();
    let dashboard = dashboard();
    let two_reads = format!("min(count_over_time(plimsoll_machine_cpus[{WINDOW}])) >= 2");
    prometheus.wait_for("rates", || !prometheus.query(&two_reads).is_empty());

    let mut checked = 0;
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let expression = substituted(text(target, "expr"));
            let found = prometheus.query(&expression);
            let title = text(panel, "title");
            assert!(!found.is_empty(), "{title}: no data for {expression}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
    let written = openmetrics(fixture::state(100));
    for line in written.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(!prometheus.query(name).is_empty(), "{name}");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] != "query" {
            continue;
        }
        let query = text(&variable["query"], "query");
        let inner = query
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) = inner.unwrap().rsplit_once(", ").unwrap();
        let selector = http::percent_encoded(&substituted(selector));
        let values = prometheus.ask(&format!("label/{label}/values?match%5B%5D={selector}"));
        assert!(
            values.as_array().is_some_and(|values| !values.is_empty()),
            "{query}"
        );
    }
}
