//! Stacks of layers that grow with each fork, made shorter: the newest ones become one layer that means the same.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use sandbar_core::Result;
use serde::{Deserialize, Serialize};

use super::{Layer, LayerId, ROOT, STORE_BASE, Staged, StoreIds, USR};
use crate::error::fail;
use crate::home::Home;
use crate::worker::{Job, Task, Worker};

/// Layers above which some become one. Far enough below [`sandbar_engine::MAX_LOWERS`], which counts the bottom too, and low enough that a lookup does not go through too many.
const MERGE_ABOVE: usize = 12;
/// How many become one: the newest, which are what little was written lately more often than the first ones. Each is copied once in about as many forks.
const MERGED: usize = 8;

/// Layers that another one means the same as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Merged {
    /// The topmost first.
    of: Vec<LayerId>,
    into: LayerId,
}

impl Merged {
    /// A stack with it, where it fits on that and nobody removed it. For whoever holds the store.
    pub(crate) fn apply_if_there(&self, home: &Home, layers: &mut Vec<LayerId>) -> Result<()> {
        if home.has_layer(&self.into)? {
            self.apply(layers);
        }
        Ok(())
    }

    /// A stack with it, where it fits on that.
    fn apply(&self, layers: &mut Vec<LayerId>) {
        if layers.starts_with(&self.of) {
            layers.splice(..self.of.len(), [self.into.clone()]);
        }
    }
}

/// Makes one layer of the topmost of a stack that is too deep; `None` means that it is not. Blocks, and takes as long as a copy, so nobody holds the store
/// meanwhile: what this made may go before somebody names it, and [`Merged::apply_if_there`] is for who does.
pub(crate) fn compact(
    home: &Home,
    executable: &Path,
    layers: &[LayerId],
    operation: &'static str,
) -> Result<Option<Merged>> {
    let moments = layers.iter().take_while(|layer| layer.is_snapshot()).count().min(MERGED);
    if layers.len() <= MERGE_ABOVE || moments < 2 {
        return Ok(None);
    }
    let of = &layers[..moments];
    let mut opened = Vec::with_capacity(of.len());
    for id in of {
        let gone = || fail(sandbar_core::ErrorKind::NotFound, operation, format!("layer `{id}` is gone"));
        opened.push(Layer::open(home, id)?.ok_or_else(gone)?);
    }
    let ids = match &opened[0].document.ids {
        StoreIds::Range { .. } => StoreIds::Range { first: STORE_BASE },
        others => others.clone(),
    };
    let worker = Worker::new(executable, ids.clone());
    let staged = Staged::new(home, ids)?;
    let mut bytes = 0;
    for part in [ROOT, USR] {
        let mut views: Vec<OwnedFd> = Vec::with_capacity(of.len());
        // The lowest first.
        for layer in opened.iter().rev() {
            let dir =
                if part == ROOT { Some(layer.root.as_fd()) } else { layer.usr.as_ref().map(OwnedFd::as_fd) };
            if let Some(dir) = dir {
                views.push(worker.view(dir, &layer.document.ids)?);
            }
        }
        if views.is_empty() {
            continue;
        }
        let target = staged.make_part(part)?;
        worker.own(target.as_fd())?;
        let mut descriptors: Vec<BorrowedFd<'_>> = views.iter().map(OwnedFd::as_fd).collect();
        descriptors.push(target.as_fd());
        let task = Task {
            job: Job::Merge { layers: views.len(), keep_whiteouts: true },
            descriptors,
            progress: &mut |_| (),
            cancel: None,
        };
        bytes += worker.run(task, operation)?.bytes;
    }
    let into = LayerId::random()?;
    staged.finish(&into, Some(bytes))?;
    Ok(Some(Merged { of: of.to_vec(), into }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_layer_takes_the_place_of_those_that_it_is_of_and_no_others() {
        let [one, two, three, four] = [(); 4].map(|()| LayerId::random().unwrap());
        let merged = Merged { of: vec![one.clone(), two.clone()], into: four.clone() };
        let mut layers = vec![one.clone(), two.clone(), three.clone()];
        merged.apply(&mut layers);
        assert_eq!(layers, [four, three.clone()]);
        let mut others = vec![three, one, two];
        let before = others.clone();
        merged.apply(&mut others);
        assert_eq!(others, before);
    }
}
