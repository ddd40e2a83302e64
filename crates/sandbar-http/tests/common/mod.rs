//! What the tests of the client share.
#![allow(dead_code, reason = "each test uses what it needs of it")]

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use sandbar_core::Error;
use sandbar_http::{Client, Config, RetryPolicy, Secret};

/// A key that must be nowhere but in the header that carries it.
pub(crate) const KEY: &str = "sk_sentinel/0123+456";

/// A client that sends the key and doesn't wait between attempts.
pub(crate) fn client() -> Client {
    Client::new(config()).unwrap()
}

pub(crate) fn config() -> Config {
    let quick = RetryPolicy::default().with_pauses(Duration::ZERO, Duration::from_millis(1));
    Config::new("test").with_retry(quick).with_secret_header("x-api-key", &Secret::from(KEY)).unwrap()
}

/// All that an error says, to a person, a log and a debugger.
pub(crate) fn words(error: &Error) -> String {
    let mut words = format!("{error} {error:?} {:?}", error.hint());
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(words, " {cause} {cause:?}");
        source = cause.source();
    }
    words
}
