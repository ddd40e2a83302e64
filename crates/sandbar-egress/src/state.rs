use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sandbar_core::Destination;

use crate::budget::Budget;
use crate::event::Recorder;
use crate::flows::{Flows, Reading};
use crate::gateway::Interception;
use crate::heartbeat::Heartbeat;
use crate::judge::Judge;
use crate::limits::Limits;
use crate::names::Names;
use crate::seams::Seams;

/// What all parts of a gateway share.
pub(crate) struct State {
    judge: RwLock<Arc<Judge>>,
    pub(crate) names: Names,
    pub(crate) limits: Limits,
    pub(crate) flows: Arc<Flows>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) seams: Seams,
    pub(crate) interception: Option<Interception>,
    new_flows: Mutex<Budget>,
}

impl State {
    pub(crate) fn new(
        judge: Judge,
        names: Names,
        limits: Limits,
        recorder: Recorder,
        seams: Seams,
        interception: Option<Interception>,
    ) -> Self {
        let second = Duration::from_secs(1);
        let new_flows =
            Budget::new(limits.connection_burst, limits.connections_per_second, second, Instant::now());
        Self {
            judge: RwLock::new(Arc::new(judge)),
            names,
            limits,
            flows: Flows::new(),
            recorder: Arc::new(recorder),
            heartbeat: Heartbeat::new(),
            seams,
            interception,
            new_flows: Mutex::new(new_flows),
        }
    }

    /// The policy in force.
    pub(crate) fn judge(&self) -> Arc<Judge> {
        self.judge.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another policy in force, for what begins from now on.
    pub(crate) fn put(&self, judge: Judge) -> Arc<Judge> {
        let judge = Arc::new(judge);
        *self.judge.write().unwrap_or_else(PoisonError::into_inner) = judge.clone();
        judge
    }

    /// Puts another policy in force and cuts what it no longer allows. Answers the flows that are not over after a while.
    pub(crate) async fn replace(&self, judge: Judge) -> Vec<u64> {
        let judge = self.put(judge);
        self.flows
            .cut_unless(|about, protocol| {
                let Some((destination, port)) = &about.to else { return true };
                let ruling = judge.decide(destination, *port, protocol);
                // What a rule now wants to read, or no longer to read, can't go on as it is.
                let is_read_right = match about.reading {
                    Reading::Start => ruling.inject.is_none(),
                    Reading::Requests => true,
                    Reading::Intercepted => ruling.inject.is_some(),
                };
                let by_name = matches!(destination, Destination::Name(_));
                let mut addresses = about.addresses.iter();
                ruling.is_allowed()
                    && is_read_right
                    && (!by_name
                        || addresses.all(|address| judge.permits(&ruling, *address, *port, protocol)))
            })
            .await
    }

    /// Takes one new connection or flow from the budget.
    pub(crate) fn may_begin(&self) -> bool {
        self.new_flows.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }
}
