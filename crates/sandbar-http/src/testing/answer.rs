use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

/// What a server answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers. Those of framing are made from the body.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A status without a body.
    ///
    /// # Panics
    ///
    /// If it is no status.
    pub fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status has three digits"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// A status with JSON.
    ///
    /// # Panics
    ///
    /// If `body` can't be JSON.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        Self::status(status)
            .with_body(serde_json::to_vec(body).expect("it can be JSON"))
            .with_header("content-type", "application/json")
    }

    /// With a header.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a name of a header");
        self.headers.insert(name, HeaderValue::from_str(value).expect("a value of a header"));
        self
    }

    /// With another body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}
