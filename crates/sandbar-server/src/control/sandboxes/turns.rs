use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Names that are remembered before those that nobody holds are looked for.
const TIDY: usize = 1024;

/// One at a time for each name: what changes the state of a sandbox waits for what changes it already.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for this name's turn, which lasts until the answer is dropped.
    pub(crate) async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        self.of(name).lock_owned().await
    }

    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= TIDY {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(name.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_waits_for_another_of_the_same_name_only() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let _other = turns.take("b").await;
        assert!(turns.of("a").try_lock_owned().is_err());
        drop(first);
        let _second = turns.take("a").await;
        for n in 0..2 * TIDY {
            drop(turns.take(&n.to_string()).await);
        }
        assert!(turns.0.lock().unwrap().len() <= TIDY + 2);
    }
}
