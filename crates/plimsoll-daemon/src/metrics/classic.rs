//! The text format that Prometheus had before OpenMetrics, 0.0.4.
//!
//! It is made of OpenMetrics text. There, a counter's description lacks the
//! `_total` of its values, and there are units, infos, and an end.

/// The text of [`openmetrics`](super::openmetrics) in the older format.
#[must_use]
pub fn classic(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut at = 0;
    while at < openmetrics.len() {
        at += translate_line(&openmetrics[at..], &mut text);
    }
    text
}

/// Translates the first line of `rest`, and returns its length.
pub(super) fn translate_line(rest: &str, into: &mut String) -> usize {
    let (line, after) = rest.split_at(rest.find('\n').map_or(rest.len(), |end| end + 1));
    if let Some(help) = line.strip_prefix("# HELP ") {
        // The type is on the next line.
        let suffix = after.lines().next().map_or("", suffix_of_type);
        let (name, help) = help.split_once(' ').unwrap_or((help, "\n"));
        into.extend(["# HELP ", name, suffix, " ", help]);
    } else if let Some(described) = line.strip_prefix("# TYPE ") {
        let (name, kind) = described.split_once(' ').unwrap_or((described, "\n"));
        let kind = if kind == "info\n" { "gauge\n" } else { kind };
        into.extend(["# TYPE ", name, suffix_of_type(line), " ", kind]);
    } else if !line.starts_with('#') {
        into.push_str(line);
    }
    line.len()
}

/// What the values of a metric of this type have behind its name.
fn suffix_of_type(line: &str) -> &'static str {
    match line.trim_end().rsplit_once(' ') {
        Some((_, "counter")) => "_total",
        Some((_, "info")) => "_info",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::classic;

    #[test]
    fn counters_and_infos_are_described_by_the_name_of_their_values() {
        let openmetrics = "# HELP a_seconds How long\n# TYPE a_seconds counter\n\
            # UNIT a_seconds seconds\na_seconds_total 1.5\n\
            # HELP b What\n# TYPE b info\nb_info{c=\"d\"} 1\n\
            # HELP e Now\n# TYPE e gauge\ne 3\n# EOF\n";
        assert_eq!(
            classic(openmetrics),
            "# HELP a_seconds_total How long\n# TYPE a_seconds_total counter\n\
             a_seconds_total 1.5\n\
             # HELP b_info What\n# TYPE b_info gauge\nb_info{c=\"d\"} 1\n\
             # HELP e Now\n# TYPE e gauge\ne 3\n"
        );
    }
}
