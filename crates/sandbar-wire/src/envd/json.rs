//! Rules of proto3's JSON form that serde does not know.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::STANDARD as ENCODE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
#[cfg(test)]
use serde::de::DeserializeOwned;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `null` is an unset field.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// Whether a field has its default and is omitted.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

struct Integer<T>(PhantomData<T>);

impl<T: TryFrom<i64>> Visitor<'_> for Integer<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer as number or string")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(value), &self)),
        }
    }

    /// Proto3's JSON form accepts `1.0` and `1e2` for integers.
    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() != 0.0 || value.abs() > EXACT {
            return Err(E::invalid_value(Unexpected::Float(value), &self));
        }
        #[expect(clippy::cast_possible_truncation, reason = "integral and within the exact range")]
        self.visit_i64(value as i64)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        match value.parse::<i64>() {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Str(value), &self)),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        self.visit_i64(0)
    }
}

/// An integer as number or string; `null` is 0.
pub(super) fn integer<'de, D: Deserializer<'de>, T: TryFrom<i64>>(d: D) -> Result<T, D::Error> {
    d.deserialize_any(Integer(PhantomData))
}

/// Proto3's JSON form of `int64` is a string.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(super) fn int64<S: Serializer>(value: &i64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const DECODE: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const DECODE_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// Decodes base64 of either alphabet, padded or not, as proto3's JSON form demands.
pub(super) fn decode_base64(text: &[u8]) -> Result<Vec<u8>, base64::DecodeError> {
    DECODE.decode(text).or_else(|error| DECODE_URL.decode(text).map_err(|_| error))
}

/// A `bytes` field.
pub(super) mod base64_bytes {
    use super::{
        Bytes, Deserialize, Deserializer, ENCODE, Engine, Error, Serialize, Serializer, decode_base64,
    };

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(in super::super) fn serialize<S: Serializer>(value: &Option<Bytes>, s: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(|bytes| ENCODE.encode(bytes)).serialize(s)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
        let Some(text) = Option::<std::borrow::Cow<'de, str>>::deserialize(d)? else { return Ok(None) };
        decode_base64(text.as_bytes()).map(|bytes| Some(bytes.into())).map_err(D::Error::custom)
    }
}

/// A name or number of an enumeration; what is unknown reads as 0, as open enumerations do.
pub(super) fn enumeration<'de, D: Deserializer<'de>>(d: D, names: &[(&str, i32)]) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(i64),
        Name(String),
        Null(()),
    }
    Ok(match Form::deserialize(d)? {
        Form::Number(number) => i32::try_from(number).unwrap_or(0),
        Form::Name(name) => names.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number),
        Form::Null(()) => 0,
    })
}

/// A round trip through JSON, for tests.
#[cfg(test)]
pub(super) fn round<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}
