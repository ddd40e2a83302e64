use http::Method;

/// Whether a request may reach the server twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idempotency {
    /// The second time changes nothing: reads, and writes that say what shall be and not what shall be done.
    Safe,
    /// The server knows the second by this key, which is sent as `Idempotency-Key`, and does it once. Errors say
    /// [`OutcomeUnknown`](sandbar_core::Retry::OutcomeUnknown) as with [`Idempotency::Never`]: another call would have another key.
    Keyed(String),
    /// The second time does it twice. Sent again only where it is certain that the first did nothing.
    Never,
}

impl Idempotency {
    /// What a method promises by itself: [`Idempotency::Safe`] for what only reads, else [`Idempotency::Never`]. HTTP calls `PUT` and `DELETE`
    /// idempotent as well, but the answer to the second `DELETE` is another one, so whoever sends it decides.
    pub fn of(method: &Method) -> Self {
        if method.is_safe() { Self::Safe } else { Self::Never }
    }

    pub(crate) fn may_repeat(&self) -> bool {
        !matches!(self, Self::Never)
    }
}
