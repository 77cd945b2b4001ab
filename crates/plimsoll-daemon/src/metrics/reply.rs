//! The texts that are being sent, and how their memory is bounded.
//!
//! Of 10,000 groups a text has many megabytes, so a client that takes long to
//! read must not have one for itself.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::classic::translate_line;
use super::negotiation::Format;

/// Texts that are being sent at once. For another one, the oldest is dropped
/// and whoever still reads it is cut off.
const MAX_TEXTS: usize = 2;

/// A text that is still being sent is sent to others too, for as long.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// How much is handed to a connection at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A text; `None`: it was dropped before all was sent.
#[derive(Debug)]
pub(super) struct Text(Mutex<Option<String>>);

impl Text {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        // Nothing that is done under the lock leaves a text half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those that are being sent.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Since when each is; the oldest first.
    sent: VecDeque<(Instant, Weak<Text>)>,
}

impl Texts {
    /// What to send now: what `render` makes, or what it has just made.
    pub(super) fn current(&mut self, render: impl FnOnce() -> String) -> Arc<Text> {
        self.sent.retain(|(_, text)| text.strong_count() > 0);
        if let Some((since, text)) = self.sent.back()
            && since.elapsed() < SHARED_FOR
            && let Some(text) = text.upgrade()
        {
            return text;
        }
        while self.sent.len() >= MAX_TEXTS {
            let oldest = self.sent.pop_front();
            if let Some(text) = oldest.and_then(|(_, text)| text.upgrade()) {
                text.lock().take();
            }
        }
        let text = Arc::new(Text(Mutex::new(Some(render()))));
        self.sent.push_back((Instant::now(), Arc::downgrade(&text)));
        text
    }
}

/// What is sent to a client.
#[derive(Debug)]
pub(super) enum Reply {
    /// Something short.
    Short(Option<Bytes>),
    /// Nothing, and how long it would be is not known.
    HeadOnly,
    /// The metrics, and how much of the text was sent.
    Metrics {
        text: Arc<Text>,
        at: usize,
        format: Format,
    },
}

impl Reply {
    pub(super) fn short(text: impl Into<Bytes>) -> Self {
        Self::Short(Some(text.into()))
    }
}

/// The client was too slow.
#[derive(Debug, thiserror::Error)]
#[error("the text was dropped before the client had read it")]
pub(super) struct CutOff;

impl Body for Reply {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let data = match &mut *self {
            Self::Short(bytes) => bytes.take().map(Ok),
            Self::HeadOnly => None,
            Self::Metrics { text, at, format } => match &*text.lock() {
                None => Some(Err(CutOff)),
                Some(text) => next_chunk(text, at, *format).map(Ok),
            },
        };
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::HeadOnly => SizeHint::default(),
            Self::Short(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Metrics { text, at, format } => match (&*text.lock(), format) {
                (Some(text), Format::OpenMetrics) => SizeHint::with_exact((text.len() - at) as u64),
                _ => SizeHint::default(),
            },
        }
    }
}

/// The next part of a text in a format.
fn next_chunk(text: &str, at: &mut usize, format: Format) -> Option<Bytes> {
    if *at >= text.len() {
        return None;
    }
    match format {
        Format::OpenMetrics => {
            let end = text.len().min(*at + CHUNK_BYTES);
            let chunk = Bytes::copy_from_slice(&text.as_bytes()[*at..end]);
            *at = end;
            Some(chunk)
        }
        Format::Classic => {
            let mut chunk = String::with_capacity(CHUNK_BYTES);
            while *at < text.len() && chunk.len() < CHUNK_BYTES {
                *at += translate_line(&text[*at..], &mut chunk);
            }
            (!chunk.is_empty()).then(|| chunk.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::classic;

    fn collect(text: &str, format: Format) -> String {
        let mut at = 0;
        let chunks = std::iter::from_fn(|| next_chunk(text, &mut at, format));
        String::from_utf8(chunks.flatten().collect()).unwrap()
    }

    #[test]
    fn chunks_add_up_to_the_whole() {
        let lines = (0..20_000).map(|n| format!("metric{{group=\"ü{n}\"}} {n}\n"));
        let text: String = lines.chain(["# EOF\n".to_owned()]).collect();
        assert!(text.len() > 4 * CHUNK_BYTES);
        assert_eq!(collect(&text, Format::OpenMetrics), text);
        assert_eq!(collect(&text, Format::Classic), classic(&text));
    }

    #[test]
    fn a_text_that_is_still_being_sent_is_shared() {
        let mut texts = Texts::default();
        let first = texts.current(|| "a".into());
        let second = texts.current(|| unreachable!("it is shared"));
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        let third = texts.current(|| "b".into());
        assert_eq!(third.lock().as_deref(), Some("b"));
    }

    #[test]
    fn the_oldest_text_is_dropped_for_a_third() {
        let mut texts = Texts::default();
        let long_ago = Instant::now().checked_sub(2 * SHARED_FOR).unwrap();
        let slow: Vec<_> = (0..MAX_TEXTS + 1)
            .map(|number| {
                let text = texts.current(|| number.to_string());
                texts.sent.back_mut().unwrap().0 = long_ago;
                text
            })
            .collect();
        assert_eq!(*slow[0].lock(), None);
        assert_eq!(slow[1].lock().as_deref(), Some("1"));
        assert_eq!(slow[2].lock().as_deref(), Some("2"));
    }
}
