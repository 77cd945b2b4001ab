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

use crate::fixture::{self, Health, Served};
use crate::{http, tools};

/// Window for the rules in place of their own, which have minutes.
const WINDOW: &str = "20s";

/// A server of metrics whose state is a second older each time.
fn serve(health: Health) -> Served {
    let seconds = AtomicU64::new(100);
    let render = move || {
        let second = seconds.fetch_add(1, Ordering::SeqCst);
        let mut state = fixture::state(second, health);
        if health == Health::Bad {
            // A bad daemon restarts all the time.
            state.daemon.uptime_usec = (second % 2) * 1_000_000;
        }
        openmetrics(state)
    };
    Served::start(render)
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A Prometheus that reads a good daemon, a bad one and one that is down, each
/// second, and has the rules with short windows.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
    _daemons: [Served; 2],
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Prometheus {
    fn start() -> Self {
        let daemons = [Health::Good, Health::Bad].map(serve);
        let [good, bad] = daemons.each_ref().map(|served| served.address);
        let folder = tempfile::tempdir().unwrap();
        let targets = [("good", good), ("bad", bad), ("down", free_address())];
        write_configuration(folder.path(), &targets);
        let (process, address) = start_process(folder.path());
        let started = Self {
            process,
            address,
            folder,
            _daemons: daemons,
        };
        started.wait_for("Prometheus is ready", || {
            let answer = http::try_request(address, "GET", "/-/ready", "");
            answer.is_some_and(|answer| answer.status == 200)
        });
        started
    }

    fn wait_for(&self, what: &str, is_so: impl FnMut() -> bool) {
        let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(tools::wait(is_so), "waited in vain: {what}: {}", log());
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

    /// Alerts that fire, as instance and name.
    fn firing(&self) -> BTreeSet<(String, String)> {
        let data = self.ask("alerts");
        let alerts = data["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let of_one = |alert: &Value| {
            let label = |name: &str| alert["labels"][name].as_str().unwrap().to_owned();
            (label("instance"), label("alertname"))
        };
        firing.map(of_one).collect()
    }
}

fn write_configuration(folder: &Path, targets: &[(&str, SocketAddr)]) {
    let rules = fs::read_to_string(tools::deploy().join("prometheus/plimsoll-rules.yml")).unwrap();
    fs::write(folder.join("rules.yml"), hastened(&rules)).unwrap();
    let target = |(name, address): &(&str, SocketAddr)| {
        format!("      - targets: ['{address}']\n        labels: {{instance: {name}}}\n")
    };
    let targets: String = targets.iter().map(target).collect();
    let configuration = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: plimsoll\n    static_configs:\n{targets}"
    );
    fs::write(folder.join("prometheus.yml"), configuration).unwrap();
}

/// Rules whose windows are seconds and which wait for nothing.
fn hastened(rules: &str) -> String {
    let mut hastened = String::new();
    for line in rules.lines() {
        let mut line = line.to_owned();
        for window in ["[5m]", "[15m]", "[30m]", "[1h]"] {
            line = line.replace(window, &format!("[{WINDOW}]"));
        }
        if !line.trim_start().starts_with("for: ") {
            hastened.push_str(&line);
            hastened.push('\n');
        }
    }
    hastened
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
        let mut is_healthy = false;
        tools::wait(|| {
            is_healthy = http::try_request(address, "GET", "/-/healthy", "").is_some();
            is_healthy || process.try_wait().unwrap().is_some()
        });
        if is_healthy {
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

#[test]
#[ignore = "make audit: needs a real Prometheus"]
fn every_alert_fires_for_a_bad_daemon_and_none_for_a_good_one() {
    tools::require();
    let prometheus = Prometheus::start();
    let down = "PlimsollDown".to_owned();
    let expected: BTreeSet<_> = alert_names()
        .into_iter()
        .map(|name| (if name == down { "down" } else { "bad" }.to_owned(), name))
        .collect();
    assert!(expected.len() >= 12, "{expected:?}");
    let mut missing = expected.clone();
    prometheus.wait_for("all alerts", || {
        let firing = prometheus.firing();
        missing.retain(|alert| !firing.contains(alert));
        println!("not yet: {missing:?}");
        missing.is_empty()
    });
    // By now the good daemon has had as long to set off alerts of its own. If the machine is busy,
    // one read of it may have failed.
    prometheus.wait_for("no other alert", || {
        let firing = prometheus.firing();
        let surplus: Vec<_> = firing.difference(&expected).collect();
        println!("too many: {surplus:?}");
        surplus.is_empty()
    });

    // The good daemon was looked at: all its series are there, and rules too.
    let up = prometheus.query(r#"up{instance="good"} == 1"#);
    assert_eq!(up.len(), 1);
    let written = openmetrics(fixture::state(100, Health::Good));
    for line in written.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let found = prometheus.query(&format!(r#"{name}{{instance="good"}}"#));
        assert!(!found.is_empty(), "{name}");
    }
    let name = r#"{group="tenants",cgroup="/tenants.slice/a \"quoted\" one",instance="good"}"#;
    let rate = format!("rate(plimsoll_cfs_periods_total{name}[{WINDOW}])");
    assert!(!prometheus.query(&rate).is_empty(), "{rate}");
    for record in ["machine_busy", "machine_batch", "cfs_throttled_periods"] {
        let found = prometheus.query(&format!("plimsoll:{record}:ratio_rate5m"));
        assert!(!found.is_empty(), "{record}");
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
fn every_panel_of_the_dashboard_shows_data() {
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
