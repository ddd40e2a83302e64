use async_trait::async_trait;

use super::sandbox::MemorySandbox;
use super::world::BACKEND;
use crate::{Error, LimitDemand, ResourceControl, Resources, Result};

#[async_trait]
impl ResourceControl for MemorySandbox {
    async fn set_resources(&self, resources: Resources, demand: LimitDemand) -> Result<()> {
        const OPERATION: &str = "set resources";
        resources.check(OPERATION)?;
        if resources.is_empty() {
            return Err(Error::invalid(OPERATION, "no limit is named: expected at least one"));
        }
        let machine = self.running(OPERATION)?;
        if demand == LimitDemand::Enforced {
            let why = "nothing stands behind the limits of emulated programs";
            return Err(Error::unsupported(OPERATION, "enforced limits", why).with_backend(BACKEND));
        }
        machine.change_resources(resources);
        Ok(())
    }
}
