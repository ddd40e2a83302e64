use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sandbar_engine::process::Tree;
use sandbar_wire::envd::{Code, EndEvent, ProcessInfo, ProcessSelector, RpcError, StartedRow};
use tokio::time::Instant;

use super::Process;

/// How long the end of a process can still be asked for, as with envd.
const RETENTION: Duration = Duration::from_secs(30);
/// Most ends that are kept, against a flood of short commands.
const MAX_RETAINED: usize = 1024;

/// Every command that runs, and those that ended lately.
#[derive(Default)]
pub(crate) struct Registry {
    running: RefCell<BTreeMap<u32, Rc<Process>>>,
    ended: RefCell<VecDeque<Ended>>,
    /// Stubs that live; a tree outlasts its command where something was detached.
    trees: RefCell<BTreeMap<i32, Arc<Tree>>>,
}

struct Ended {
    pid: u32,
    tag: Option<String>,
    event: EndEvent,
    at: Instant,
}

/// What a selector found.
pub(crate) enum Found {
    Running(Rc<Process>),
    Ended(u32, EndEvent),
}

impl Registry {
    pub(super) fn insert(&self, process: Rc<Process>) {
        self.ended.borrow_mut().retain(|ended| ended.pid != process.pid);
        self.running.borrow_mut().insert(process.pid, process);
    }

    pub(super) fn retire(&self, process: &Rc<Process>, event: EndEvent) {
        let mut running = self.running.borrow_mut();
        if running.get(&process.pid).is_some_and(|known| Rc::ptr_eq(known, process)) {
            running.remove(&process.pid);
        }
        let mut ended = self.ended.borrow_mut();
        ended.push_back(Ended { pid: process.pid, tag: process.tag.clone(), event, at: Instant::now() });
        while ended.len() > MAX_RETAINED || ended.front().is_some_and(|ended| ended.at.elapsed() > RETENTION)
        {
            ended.pop_front();
        }
    }

    pub(crate) fn insert_tree(&self, tree: &Arc<Tree>) {
        self.trees.borrow_mut().insert(tree.stub(), tree.clone());
    }

    pub(crate) fn remove_tree(&self, tree: &Arc<Tree>) {
        tree.reap();
        let mut trees = self.trees.borrow_mut();
        if trees.get(&tree.stub()).is_some_and(|known| Arc::ptr_eq(known, tree)) {
            trees.remove(&tree.stub());
        }
    }

    pub(crate) fn trees(&self) -> Vec<Arc<Tree>> {
        self.trees.borrow().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.running.borrow().len()
    }

    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        self.running.borrow().values().map(|process| process.info()).collect()
    }

    /// What is known of each that runs.
    pub(super) fn started(&self) -> BTreeMap<u32, StartedRow> {
        self.running.borrow().iter().map(|(pid, process)| (*pid, process.started_row())).collect()
    }

    /// Finds a process that runs or ended lately.
    pub(crate) fn find(&self, selector: &ProcessSelector) -> Result<Found, RpcError> {
        let matches = |pid: u32, tag: Option<&String>| match (selector.pid, &selector.tag) {
            (Some(wanted), _) => pid == wanted,
            (None, Some(wanted)) => tag == Some(wanted),
            (None, None) => false,
        };
        let running = self.running.borrow();
        if let Some(process) = running.values().find(|process| matches(process.pid, process.tag.as_ref())) {
            return Ok(Found::Running(process.clone()));
        }
        let ended = self.ended.borrow();
        let recent = ended.iter().rev().filter(|ended| ended.at.elapsed() <= RETENTION);
        for ended in recent {
            if matches(ended.pid, ended.tag.as_ref()) {
                return Ok(Found::Ended(ended.pid, ended.event.clone()));
            }
        }
        let text = match (selector.pid, &selector.tag) {
            (Some(pid), _) => format!("process with pid {pid} not found"),
            (None, Some(tag)) => format!("process with tag {tag} not found"),
            (None, None) => return Err(RpcError::new(Code::InvalidArgument, "no process was named")),
        };
        Err(RpcError::new(Code::NotFound, text))
    }

    /// Finds a process that runs.
    pub(crate) fn running(&self, selector: &ProcessSelector) -> Result<Rc<Process>, RpcError> {
        match self.find(selector)? {
            Found::Running(process) => Ok(process),
            Found::Ended(pid, _) => {
                Err(RpcError::new(Code::NotFound, format!("process with pid {pid} not found")))
            }
        }
    }
}
