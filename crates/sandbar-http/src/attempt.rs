//! One attempt of a call, within its time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use crate::call::Call;
use crate::fault::Fault;
use crate::upload::{Body, Source};
use crate::{Response, Streamed};

/// What each attempt of a call sends.
pub(crate) struct Attempt<'a> {
    pub(crate) http: &'a reqwest::Client,
    pub(crate) call: &'a Arc<Call>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Body,
    pub(crate) timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) body_limit: usize,
    pub(crate) number: u32,
}

impl Attempt<'_> {
    /// To the end of the answer.
    pub(crate) async fn whole(self) -> Result<Response, Fault> {
        self.within(async {
            let mut streamed = self.head().await?;
            let body = streamed.read_all(self.body_limit).await?;
            let Streamed { call, status, headers, attempts, .. } = streamed;
            Ok(Response { call, status, headers, body, attempts })
        })
        .await
    }

    /// To the head of the answer.
    pub(crate) async fn opened(self) -> Result<Streamed, Fault> {
        self.within(self.head()).await
    }

    async fn head(&self) -> Result<Streamed, Fault> {
        let mut request = reqwest::Request::new(self.call.method.clone(), self.call.url.clone());
        request.headers_mut().clone_from(self.headers);
        *request.body_mut() = match self.body {
            Body::Empty => None,
            Body::Bytes(bytes) => Some(bytes.clone().into()),
            Body::Stream(source) => Some(reqwest::Body::wrap(source.upload())),
        };
        let answer = self.http.execute(request).await.map_err(|error| Fault::of(error, &self.call.url))?;
        Ok(Streamed::new(self.call.clone(), answer, self.idle_timeout, self.number))
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let source = self.source();
        let mut work = pin!(work);
        let mut since = Instant::now();
        let ended = loop {
            if let Ok(ended) = timeout_at(far_from(since, self.timeout), &mut work).await {
                break ended;
            }
            match source.and_then(Source::moved).filter(|moved| *moved > since) {
                // A big body on a slow line is late only when it stands still.
                Some(moved) => since = moved,
                None => break Err(Fault::late(self.timeout)),
            }
        };
        // Whatever the libraries made of it, that is why.
        match (ended, source.and_then(Source::take_fault)) {
            (Err(_), Some(own)) => Err(Fault::own(own)),
            (ended, _) => ended,
        }
    }

    fn source(&self) -> Option<&Source> {
        match self.body {
            Body::Stream(source) => Some(source),
            Body::Empty | Body::Bytes(_) => None,
        }
    }
}

/// The moment after so long; what lies beyond the clock's end is a year away.
pub(crate) fn far(wait: Duration) -> Instant {
    far_from(Instant::now(), wait)
}

fn far_from(start: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    start + wait.min(YEAR)
}
