use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use sandbar::observe::to_safe_json;
use sandbar::{Decision, DecisionOptions, Decisions, Follow, Network, SandboxExt, SandboxProvider, Verdict};

use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::require_or_absent;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{DecisionJson, Printer, decision_text};
use crate::settings::Which;
use crate::signals::Signals;
use crate::stdio::{Output, Stream};

/// Prints decisions. Ends at their end, or when it is interrupted, or when nobody reads any more.
pub(super) async fn log(
    provider: &dyn SandboxProvider,
    id: &str,
    options: DecisionOptions,
    which: Which,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let begin = async {
        let sandbox = require_or_absent(provider, id, "read egress log").await?;
        let decisions = chosen(sandbox.require_network()?, options, which).await?;
        Ok::<_, Failure>((sandbox, decisions))
    };
    // The handle lives as long as what comes from it.
    let (_sandbox, decisions) = or_interrupt(&mut signals, begin).await?;
    let mut output = Output::new(Stream::Stdout);
    let told = tell(decisions, &mut output, printer);
    let status = tokio::select! {
        biased;
        signal = signals.next() => ExitStatus::Interrupted(signal.0),
        told = told => told.map(|()| ExitStatus::Done)?,
        () = Output::reader_gone(Stream::Stdout) => ExitStatus::ReaderGone,
    };
    if status == ExitStatus::Done {
        output.finish().await.map_err(Failure::output)?;
    }
    Ok(status)
}

async fn tell(mut decisions: Decisions, output: &mut Output, printer: Printer) -> Result<()> {
    while let Some(decision) = decisions.next().await {
        let decision = decision?;
        let line = if printer.json() {
            to_safe_json(&DecisionJson::from(&decision)).expect("own types always serialise")
        } else {
            decision_text(&decision)
        };
        output.write(Bytes::from(line + "\n")).await.map_err(Failure::output)?;
    }
    Ok(())
}

/// The decisions that are wanted. A number of the newest means those that are shown, which the sandbox does not know.
pub(super) async fn chosen(
    network: &dyn Network,
    options: DecisionOptions,
    which: Which,
) -> Result<Decisions, sandbar::Error> {
    if which == Which::All {
        return network.decisions(options).await;
    }
    let Some(tail) = options.tail else { return denied(network, options).await };
    let opened = Timestamp::now();
    let kept = denied(network, DecisionOptions { tail: None, follow: Follow::No, ..options }).await?;
    let newest = newest(kept, tail).await?;
    if options.follow == Follow::No {
        return Ok(stream::iter(newest.into_iter().map(Ok)).boxed());
    }
    // From the first that is shown on: what came meanwhile is neither lost nor told twice.
    let since = match newest.front() {
        Some(first) => Some(first.at),
        None if tail == 0 => Some(options.since.map_or(opened, |since| since.max(opened))),
        None => options.since,
    };
    denied(network, DecisionOptions { tail: None, since, ..options }).await
}

async fn denied(network: &dyn Network, options: DecisionOptions) -> Result<Decisions, sandbar::Error> {
    let all = network.decisions(options).await?;
    let is_denied = |decision: &Decision| decision.verdict == Verdict::Denied;
    Ok(all.try_filter(move |decision| std::future::ready(is_denied(decision))).boxed())
}

/// The last so many; no more of them are held at a time.
async fn newest(mut decisions: Decisions, count: usize) -> Result<VecDeque<Decision>, sandbar::Error> {
    let mut newest = VecDeque::new();
    while let Some(decision) = decisions.try_next().await? {
        newest.push_back(decision);
        if newest.len() > count {
            newest.pop_front();
        }
    }
    Ok(newest)
}
