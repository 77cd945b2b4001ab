//! Knobs as words, for serde.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::Visitor;

/// Reads a value from its text, for serde; a number counts as its text. Files and JSON use the same
/// text as the command line.
///
/// # Errors
/// The error of the value for a text that is not allowed, or of the format for another type.
pub fn from_word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    struct Word<T>(PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Word<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<T, E> {
            self.visit_str(&value.to_string())
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i128<E: serde::de::Error>(self, number: i128) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
            // With a decimal point also where the number is whole.
            self.visit_str(&format!("{number:?}"))
        }
    }

    deserializer.deserialize_any(Word(PhantomData))
}

macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::knobs::from_word(deserializer)
            }
        }
    )*};
}
pub(super) use serde_as_text;
