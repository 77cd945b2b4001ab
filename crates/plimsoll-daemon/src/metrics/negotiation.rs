//! Which of the two formats a client gets.

/// A format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// Prometheus's own, 0.0.4, which is also readable text for a browser.
    Classic,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// By the client's `Accept`: OpenMetrics for whoever names it and does not
    /// like plain text better.
    pub(super) fn accepted(accept: &str) -> Self {
        let openmetrics = quality(accept, "application/openmetrics-text");
        if openmetrics > 0.0 && openmetrics >= quality(accept, "text/plain") {
            Self::OpenMetrics
        } else {
            Self::Classic
        }
    }
}

/// How much a client likes a type that it names; 0: not at all.
fn quality(accept: &str, media_type: &str) -> f64 {
    let of_one = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let is_it = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(media_type));
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        is_it.then(|| quality.map_or(1.0, |number| number.parse().unwrap_or(0.0)))
    };
    accept.split(',').filter_map(of_one).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::Format::{self, Classic, OpenMetrics};

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), OpenMetrics);
        assert_eq!(
            Format::accepted("Application/OpenMetrics-Text"),
            OpenMetrics
        );
        assert_eq!(Format::accepted("text/html,*/*;q=0.8"), Classic);
        assert_eq!(Format::accepted("*/*"), Classic);
        assert_eq!(Format::accepted(""), Classic);
        let refused = "application/openmetrics-text;q=0";
        assert_eq!(Format::accepted(refused), Classic);
        let second = "text/plain;q=0.6,application/openmetrics-text;q=0.5";
        assert_eq!(Format::accepted(second), Classic);
    }
}
