use async_trait::async_trait;
use sandbar_core::{GuestPath, Result, WatchEvents, WatchOptions, Watching};

use super::EnvdClient;
use super::files::text;
use super::refusal::too_old;

#[async_trait]
impl Watching for EnvdClient {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        const WATCH: &str = "watch";
        let operation = self.guest.operation(WATCH);
        text(path, operation)?;
        let version = self.version(WATCH).await?;
        if options == WatchOptions::Recursive && !version.watches_below() {
            return Err(too_old(operation, "watching folders below a folder", version));
        }
        self.guest.watch(path, options).await
    }
}
