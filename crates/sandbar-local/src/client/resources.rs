use async_trait::async_trait;
use sandbar_core::{Error, LimitDemand, ResourceControl, Resources, Result};

use super::link::Link;
use crate::ask::{ANSWER, misplaced};
use crate::bounds;
use crate::config::BACKEND;
use crate::shim::protocol::{LimitOrders, Op, Reply};

#[async_trait]
impl ResourceControl for Link {
    /// Memory, processor time and processes change where a control group holds them. Elsewhere memory can be changed, since it is watched; a limit on
    /// processes can't, and processor time has none. Commands that run keep the limit on single files that they were started with.
    async fn set_resources(&self, resources: Resources, demand: LimitDemand) -> Result<()> {
        const OPERATION: &str = "set resources";
        resources.check(OPERATION).map_err(|error| error.with_backend(BACKEND))?;
        if resources.is_empty() {
            let error = Error::invalid(OPERATION, "no limit is named: expected at least one");
            return Err(error.with_backend(BACKEND));
        }
        bounds::check(OPERATION, &resources)?;
        let op = || Op::SetResources { limits: LimitOrders::change(resources, demand) };
        match self.ask_shim(op, ANSWER, OPERATION).await? {
            (Reply::Resized, _) => Ok(()),
            _ => Err(misplaced(OPERATION)),
        }
    }
}
