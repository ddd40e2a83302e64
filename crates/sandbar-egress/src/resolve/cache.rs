use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::Hostname;
use tokio::time::Instant;

use super::{Answer, Resolve};

/// Longest time that an answer is kept, whatever it says itself: a name that moves is followed soon.
const LONGEST: Duration = Duration::from_secs(30);
/// Answers that are kept.
const ANSWERS: usize = 1024;

/// Keeps answers for as long as they hold, and not for long.
pub(crate) struct Cached<R> {
    inner: R,
    kept: Mutex<HashMap<Hostname, (Answer, Instant)>>,
}

impl<R> Cached<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, kept: Mutex::default() }
    }
}

#[async_trait]
impl<R: Resolve> Resolve for Cached<R> {
    async fn resolve(&self, name: &Hostname) -> Result<Answer, String> {
        let now = Instant::now();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some((answer, until)) = kept
            && now < until
        {
            return Ok(answer);
        }
        let answer = self.inner.resolve(name).await?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(name);
        if kept.len() >= ANSWERS {
            kept.retain(|_, (_, until)| now < *until);
        }
        if kept.len() < ANSWERS && !answer.ttl.is_zero() {
            kept.insert(name.clone(), (answer.clone(), now + answer.ttl.min(LONGEST)));
        }
        Ok(answer)
    }
}
