//! Bodies of replies, and a bound of their memory.
//!
//! The text of 10,000 groups has many megabytes, so that clients share it, and
//! slow ones lose it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Texts that are being sent at once. For another one, the oldest is dropped
/// and the clients that still read it are cut off.
const MAX_TEXTS: usize = 2;

/// Age up to which a text that is still being sent is sent to other clients.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Bytes handed to a connection at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A text; `None` if it was dropped before all was sent.
#[derive(Debug)]
pub(super) struct Text(Mutex<Option<String>>);

impl Text {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        // No operation under the lock leaves a text half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Each with the time at which it was made, the oldest first.
    sent: VecDeque<(Instant, Weak<Text>)>,
}

impl Texts {
    /// Text to send now: a new one of `render`, or one that it has just made.
    pub(super) fn current(&mut self, now: Instant, render: impl FnOnce() -> String) -> Arc<Text> {
        self.sent.retain(|(_, text)| text.strong_count() > 0);
        if let Some((since, text)) = self.sent.back()
            && now.saturating_duration_since(*since) < SHARED_FOR
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
        self.sent.push_back((now, Arc::downgrade(&text)));
        text
    }
}

#[derive(Debug)]
pub(super) enum Reply {
    Short(Option<Bytes>),
    /// No body, and the length of the text is not known.
    HeadOnly,
    /// The metrics, and how many bytes of the text were sent.
    Metrics {
        text: Arc<Text>,
        at: usize,
    },
}

impl Reply {
    pub(super) fn short(text: impl Into<Bytes>) -> Self {
        Self::Short(Some(text.into()))
    }
}

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
            Self::Metrics { text, at } => match &*text.lock() {
                None => Some(Err(CutOff)),
                Some(text) => next_chunk(text, at).map(Ok),
            },
        };
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::HeadOnly => SizeHint::default(),
            Self::Short(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Metrics { text, at } => match &*text.lock() {
                Some(text) => SizeHint::with_exact((text.len() - at) as u64),
                None => SizeHint::default(),
            },
        }
    }
}

/// The next part of a text: a copy, so that the text can be dropped while a
/// client is slow to take the part.
fn next_chunk(text: &str, at: &mut usize) -> Option<Bytes> {
    let rest = &text.as_bytes()[*at..];
    let chunk = &rest[..rest.len().min(CHUNK_BYTES)];
    *at += chunk.len();
    (!chunk.is_empty()).then(|| Bytes::copy_from_slice(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    #[test]
    fn chunks_add_up_to_the_whole() {
        let lines = (0..20_000).map(|n| format!("metric{{group=\"ü{n}\"}} {n}\n"));
        let text: String = lines.chain(["# EOF\n".to_owned()]).collect();
        assert!(text.len() > 4 * CHUNK_BYTES);
        let mut at = 0;
        let chunks = std::iter::from_fn(|| next_chunk(&text, &mut at));
        assert_eq!(String::from_utf8(chunks.flatten().collect()).unwrap(), text);
    }

    #[test]
    fn a_text_that_is_still_being_sent_is_shared() {
        let mut texts = Texts::default();
        let now = os::now();
        let first = texts.current(now, || "a".into());
        let second = texts.current(now, || unreachable!("it is shared"));
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        let third = texts.current(now, || "b".into());
        assert_eq!(third.lock().as_deref(), Some("b"));
    }

    #[test]
    fn the_oldest_text_is_dropped_for_a_third() {
        let mut texts = Texts::default();
        let mut now = os::now();
        let slow: Vec<_> = (0..MAX_TEXTS + 1)
            .map(|number| {
                now += SHARED_FOR;
                texts.current(now, || number.to_string())
            })
            .collect();
        assert_eq!(*slow[0].lock(), None);
        assert_eq!(slow[1].lock().as_deref(), Some("1"));
        assert_eq!(slow[2].lock().as_deref(), Some("2"));
    }
}
