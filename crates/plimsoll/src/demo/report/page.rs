//! HTML page with tables and plots.

use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;

use super::super::findings;
use super::super::outcome::{DemoOutcome, PhaseResult};
use super::super::table;
use super::plot;
use crate::error::Result;

/// Style sheet of the page, for light and dark mode.
const STYLE: &str = include_str!("style.css");

/// Limits of the demo.
const LIMITS: [&str; 4] = [
    "One run of a few seconds per phase on one machine: repeat it before you rely on a figure. \
     The figures include the effects of other programs on this machine and, if it is virtual, on its host.",
    "The burners only compute. Work that fills caches, memory bandwidth or disks also slows a \
     service in ways that no CPU scheduler can undo.",
    "The load generator runs inside the service's group and its own lateness counts as latency: \
     figures are pessimistic rather than flattering.",
    "Requests only use CPU time; a service that waits for other services has other tail latencies.",
];

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

pub fn page(outcome: &DemoOutcome) -> Result<String> {
    let mut body = String::new();
    body += &heading(outcome);
    if !outcome.phases.is_empty() {
        body += &section(
            "A service and its neighbours",
            &html_table(
                table::PHASE_HEADER,
                outcome.phases.iter().map(table::phase_row),
            ),
            &table::phase_legend(outcome),
            &plot::timeline(&outcome.phases, outcome.phase_seconds)?,
        );
    }
    if !outcome.bursts.is_empty() {
        body += &section(
            "A bursty service and its quota",
            &html_table(
                table::BURST_HEADER,
                outcome.bursts.iter().map(table::burst_row),
            ),
            &table::burst_legend(outcome),
            &plot::timeline(&outcome.bursts, outcome.phase_seconds)?,
        );
    }
    body += &commands(outcome);
    body += &notes(outcome);
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Plimsoll demo</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n"
    ))
}

fn heading(outcome: &DemoOutcome) -> String {
    let host = &outcome.host;
    let started = UNIX_EPOCH + Duration::from_secs(outcome.started_unix_seconds);
    let facts = [
        ("Kernel", host.kernel.clone()),
        ("CPUs", host.cpus.to_string()),
        ("Interface", host.interface.clone()),
        ("Measured", format_rfc3339_seconds(started).to_string()),
        ("Per phase", format!("{} s", outcome.phase_seconds)),
        ("Plimsoll", outcome.version.clone()),
    ];
    let facts = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(value)));
    let findings = findings::sentences(outcome);
    let findings = findings
        .iter()
        .map(|line| format!("<li>{}</li>\n", escaped(line)));
    format!(
        "<h1>Plimsoll demo</h1>\n<ul class=\"findings\">\n{}</ul>\n<dl class=\"facts\">\n{}</dl>\n",
        findings.collect::<String>(),
        facts.collect::<String>()
    )
}

/// A section: table, its explanation, plot and legend.
fn section(title: &str, table: &str, legend: &str, svg: &str) -> String {
    let key = [
        ("p50", "p50 per interval"),
        ("p99", "p99 per interval"),
        ("first", "p99 of the whole first phase"),
        ("busy", "machine busy"),
    ];
    let key = key
        .iter()
        .map(|(role, name)| format!("<span class=\"key {role}\">{name}</span>"));
    format!(
        "<section>\n<h2>{title}</h2>\n<div class=\"scroll\">\n{table}</div>\n<p>{}</p>\n\
         <figure>\n<div class=\"scroll\" role=\"img\" aria-label=\"{title}: latency and machine \
         utilisation over time, phase beside phase\">\n{svg}</div>\n\
         <figcaption>{}</figcaption>\n</figure>\n</section>\n",
        escaped(legend),
        key.collect::<String>()
    )
}

fn html_table(header: [&str; 8], rows: impl Iterator<Item = [String; 8]>) -> String {
    let head = header
        .map(|name| format!("<th scope=\"col\">{}</th>", escaped(name)))
        .concat();
    let row = |cells: [String; 8]| {
        let [first, rest @ ..] = cells;
        let rest = rest
            .map(|cell| format!("<td>{}</td>", escaped(&cell)))
            .concat();
        format!(
            "<tr><th scope=\"row\">{}</th>{rest}</tr>\n",
            escaped(&first)
        )
    };
    format!(
        "<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{}</tbody>\n</table>\n",
        rows.map(row).collect::<String>()
    )
}

fn commands(outcome: &DemoOutcome) -> String {
    let phase = |phase: &PhaseResult| {
        let lines: Vec<_> = phase.commands.iter().map(|line| escaped(line)).collect();
        // All jobs but the last run in the background.
        format!(
            "<h3>{}</h3>\n<pre>{}</pre>\n",
            escaped(&phase.label),
            lines.join(" &amp;\n")
        )
    };
    let all = outcome.phases.iter().chain(&outcome.bursts).map(phase);
    format!(
        "<section>\n<h2>The exact commands</h2>\n<p>Each phase is what these commands do in a \
         shell, as root or in a delegated cgroup; burners are ended when the service has.</p>\n{}</section>\n",
        all.collect::<String>()
    )
}

fn notes(outcome: &DemoOutcome) -> String {
    let own = outcome
        .notes
        .iter()
        .map(|note| format!("<li>{}.</li>\n", escaped(note)));
    let limits = LIMITS
        .iter()
        .map(|note| format!("<li>{}</li>\n", escaped(note)));
    format!(
        "<section>\n<h2>How far to trust this</h2>\n<ul>\n{}</ul>\n</section>\n",
        own.chain(limits).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::*;

    #[test]
    fn page_has_every_phase_and_is_self_contained() {
        let outcome = fixture::outcome();
        let page = page(&outcome).unwrap();
        for phase in outcome.phases.iter().chain(&outcome.bursts) {
            let row = format!("<th scope=\"row\">{}</th>", phase.label);
            assert!(page.contains(&row), "{row}");
            assert!(page.contains(&escaped(&phase.commands[0])));
        }
        assert_eq!(page.matches("<svg").count(), 2);
        for foreign in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut outcome = fixture::outcome();
        outcome.notes.push("<b>&\"'".into());
        outcome.phases[0].title = "<i>".into();
        let page = page(&outcome).unwrap();
        assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;"));
        assert!(page.contains("6.18.0-&lt;test&gt;"));
        assert!(!page.contains("<b>") && !page.contains("<i>") && !page.contains("<test>"));
    }

    #[test]
    fn interrupted_demo_has_a_page() {
        let mut outcome = fixture::outcome();
        outcome.phases.truncate(1);
        outcome.bursts.clear();
        let page = page(&outcome).unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
    }
}
