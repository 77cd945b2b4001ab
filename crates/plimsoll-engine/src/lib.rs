//! plimsoll-engine
