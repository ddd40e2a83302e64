use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

/// A request as it came, whole.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The method.
    pub method: Method,
    /// Path and query, as they were sent.
    pub uri: Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Recorded {
    /// The path.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// A header, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If it isn't.
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{} {} has no JSON as its body: {error}", self.method, self.uri))
    }

    /// Whether `text` was sent anywhere in it: address, headers or body, plain, percent-encoded or in base64.
    pub fn has(&self, text: &str) -> bool {
        self.places().iter().any(|place| {
            holds(place, text.as_bytes()) || in_base64(text).iter().any(|form| holds(place, form.as_bytes()))
        })
    }

    /// Whether `text` was sent in its body, plain or in base64.
    pub fn has_in_body(&self, text: &str) -> bool {
        Self { headers: HeaderMap::new(), uri: Uri::default(), ..self.clone() }.has(text)
    }

    fn places(&self) -> Vec<Vec<u8>> {
        let uri = self.uri.to_string();
        let mut places = vec![percent_decode_str(&uri).collect(), uri.into_bytes(), self.body.to_vec()];
        for (name, value) in &self.headers {
            places.push([name.as_str().as_bytes(), b": ", value.as_bytes()].concat());
        }
        places
    }
}

/// The middle of a text in base64, however many bytes stand before it: what depends on its neighbours is left out.
fn in_base64(text: &str) -> Vec<String> {
    (0..3)
        .map(|before| {
            let encoded = STANDARD_NO_PAD.encode([&b"\0\0"[..before.min(2)], text.as_bytes()].concat());
            let from = (before * 8).div_ceil(6);
            let to = (before + text.len()) * 8 / 6;
            encoded.get(from..to).unwrap_or_default().to_owned()
        })
        .filter(|form| !form.is_empty())
        .collect()
}

fn holds(place: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && place.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_found_wherever_it_is_in_base64(before in "[a-z]{0,9}", text in "[A-Z]{4,20}", after in "[a-z]{0,9}") {
            let body = STANDARD_NO_PAD.encode(format!("{before}{text}{after}"));
            let recorded = Recorded {
                method: Method::POST,
                uri: Uri::from_static("/"),
                headers: HeaderMap::new(),
                body: body.into(),
            };
            prop_assert!(recorded.has_in_body(&text));
            prop_assert!(!recorded.has("another-one"));
        }
    }
}
