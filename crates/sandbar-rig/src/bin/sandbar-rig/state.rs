//! What tests set while the rig runs.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sandbar_rig::Address;
use sandbar_rig::wire::Answer;

use crate::authority::Authority;
use crate::ledger::{Ledger, lock, plain};

/// First of the IPv4 addresses that are given to tests: public ones.
const FIRST_V4: u32 = u32::from_be_bytes([45, 77, 0, 1]);
/// First of the IPv6 addresses that are given to tests: public ones.
const FIRST_V6: u128 = 0x2a01_0077_0000_0000_0000_0000_0000_0001;
/// How many addresses can be given.
const ADDRESSES: u32 = 65_000;

/// Shared by all services.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) authority: Authority,
    zone: Mutex<HashMap<String, Name>>,
    folders: Mutex<HashMap<String, PathBuf>>,
    addresses: AtomicU32,
}

#[derive(Debug)]
struct Name {
    answers: Vec<Answer>,
    /// Queries so far by type.
    asked: HashMap<String, usize>,
}

impl State {
    pub(crate) fn new(ledger: Arc<Ledger>, authority: Authority) -> Self {
        let (zone, folders) = (Mutex::default(), Mutex::default());
        Self { ledger, authority, zone, folders, addresses: AtomicU32::new(0) }
    }

    pub(crate) fn address(&self) -> Result<Address, String> {
        let number = self.addresses.fetch_add(1, Ordering::Relaxed);
        if number >= ADDRESSES {
            return Err(format!("all {ADDRESSES} addresses are taken"));
        }
        Ok(Address {
            v4: Ipv4Addr::from_bits(FIRST_V4 + number),
            v6: Ipv6Addr::from_bits(FIRST_V6 + u128::from(number)),
        })
    }

    pub(crate) fn publish(&self, name: &str, answers: Vec<Answer>) {
        lock(&self.zone).insert(plain(name), Name { answers, asked: HashMap::new() });
    }

    /// The answer to this query, which counts as one.
    pub(crate) fn answer(&self, name: &str, kind: &str) -> Option<Answer> {
        let mut zone = lock(&self.zone);
        let mut key = name.to_owned();
        let mut rest = name;
        while !zone.contains_key(&key) {
            let (_, above) = rest.split_once('.')?;
            rest = above;
            key = format!("*.{above}");
        }
        let entry = zone.get_mut(&key)?;
        let asked = entry.asked.entry(kind.to_owned()).or_default();
        let answer = entry.answers.get(*asked).or(entry.answers.last()).cloned();
        *asked += 1;
        answer
    }

    pub(crate) fn mount(&self, host: &str, folder: PathBuf) {
        lock(&self.folders).insert(plain(host), folder);
    }

    pub(crate) fn folder(&self, host: &str) -> Option<PathBuf> {
        lock(&self.folders).get(host).cloned()
    }
}
