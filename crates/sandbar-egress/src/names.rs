use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbar_core::{Destination, Hostname};

use crate::budget::Budget;
use crate::judge::Spelled;
use crate::limits::Limits;
use crate::pool::{Assignment, Pool};

/// Keeps assignments of addresses beyond the gateway's own life, so that none is ever given again.
pub trait Journal: Send + Sync {
    /// Writes one down. It holds only after this; the resolver answers nobody before.
    fn assigned(&self, assignment: &Assignment) -> io::Result<()>;
}

/// Names, the addresses that stand for them, and what may still be spent on more.
pub(crate) struct Names {
    book: Mutex<Book>,
    journal: Arc<dyn Journal>,
}

struct Book {
    pool: Pool,
    new_names: Budget,
    label_bytes_left: u64,
}

/// Why a name gets no address.
#[derive(Debug)]
pub(crate) enum NoAddress {
    /// All are given away.
    UsedUp,
    /// So many new names in so short a time.
    TooFast,
    /// As much as may be said in labels was said.
    LabelBytes,
    /// It could not be written down.
    Journal(io::Error),
}

impl Names {
    pub(crate) fn new(pool: Pool, spelled: u64, limits: &Limits, journal: Arc<dyn Journal>) -> Self {
        let minute = Duration::from_secs(60);
        let book = Book {
            pool,
            new_names: Budget::new(
                limits.new_name_burst,
                limits.new_names_per_minute,
                minute,
                Instant::now(),
            ),
            label_bytes_left: limits.wildcard_label_bytes.saturating_sub(spelled),
        };
        Self { book: Mutex::new(book), journal }
    }

    /// The address that stands for `name`; given now if need be.
    pub(crate) fn address(&self, name: &Hostname, spelled: Spelled) -> Result<Ipv4Addr, NoAddress> {
        let mut book = self.lock();
        if let Some(address) = book.pool.address(name) {
            return Ok(address);
        }
        let address = book.pool.next().ok_or(NoAddress::UsedUp)?;
        let bytes = match spelled {
            Spelled::Full | Spelled::Not => 0,
            Spelled::Below(bytes) => u64::try_from(bytes).unwrap_or(u64::MAX),
        };
        let left = book.label_bytes_left.checked_sub(bytes).ok_or(NoAddress::LabelBytes)?;
        if spelled != Spelled::Full && !book.new_names.take(Instant::now()) {
            return Err(NoAddress::TooFast);
        }
        let assignment = Assignment { name: name.clone(), address };
        self.journal.assigned(&assignment).map_err(NoAddress::Journal)?;
        book.label_bytes_left = left;
        book.pool.assign(name).map(|given| given.address).ok_or(NoAddress::UsedUp)
    }

    /// What an address that a program connects to means. An address of the pool that stands for no name means nothing.
    pub(crate) fn destination(&self, address: Ipv4Addr) -> Option<Destination> {
        if !Pool::is_synthetic(address) {
            return Some(Destination::Address(address.into()));
        }
        self.lock().pool.name(address).map(Destination::Name)
    }

    pub(crate) fn snapshot(&self) -> Vec<Assignment> {
        self.lock().pool.snapshot()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
