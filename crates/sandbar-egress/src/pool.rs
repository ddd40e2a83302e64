use std::collections::HashMap;
use std::net::Ipv4Addr;

use sandbar_core::{Error, ErrorKind, Hostname, Result};
use serde::{Deserialize, Serialize};

use crate::control::{CONTROL_ADDRESS, CONTROL_NAME};

/// First address that stands for a name. Those before it are the gateway's own.
const FIRST: u32 = u32::from_be_bytes([198, 18, 1, 0]);
/// Last one: the end of `198.18.0.0/15`.
const LAST: u32 = u32::from_be_bytes([198, 19, 255, 255]);

/// An address that stands for a name, and for nothing else in the sandbox's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The name.
    pub name: Hostname,
    /// The address.
    pub address: Ipv4Addr,
}

/// Names and the addresses that stand for them, given in order.
#[derive(Debug)]
pub(crate) struct Pool {
    names: Vec<Hostname>,
    addresses: HashMap<Hostname, Ipv4Addr>,
    most: usize,
}

impl Pool {
    /// With what was assigned before, in that order, and room for `most` names.
    pub(crate) fn restore(assigned: Vec<Assignment>, most: usize) -> Result<Self> {
        let mut pool = Self { names: Vec::new(), addresses: HashMap::new(), most };
        for Assignment { name, address } in assigned {
            let next = pool.next();
            if next != Some(address) || pool.addresses.contains_key(&name) {
                let message =
                    format!("`{name}` can't have the address `{address}`: they were not given in this order");
                return Err(Error::new(ErrorKind::Unexpected, "restore synthetic addresses", message));
            }
            pool.put(name, address);
        }
        Ok(pool)
    }

    /// What was assigned, in order.
    pub(crate) fn snapshot(&self) -> Vec<Assignment> {
        let assignments = self.names.iter().zip(FIRST..);
        assignments
            .map(|(name, address)| Assignment { name: name.clone(), address: address.into() })
            .collect()
    }

    /// The address that stands for `name` already.
    pub(crate) fn address(&self, name: &Hostname) -> Option<Ipv4Addr> {
        if name.as_str() == CONTROL_NAME { Some(CONTROL_ADDRESS) } else { self.addresses.get(name).copied() }
    }

    /// The name that `address` stands for.
    pub(crate) fn name(&self, address: Ipv4Addr) -> Option<Hostname> {
        if address == CONTROL_ADDRESS {
            return Hostname::parse(CONTROL_NAME).ok();
        }
        let index = u32::from(address).checked_sub(FIRST)?;
        self.names.get(usize::try_from(index).ok()?).cloned()
    }

    /// The address that the next name gets; none when they are used up.
    pub(crate) fn next(&self) -> Option<Ipv4Addr> {
        let next = u32::try_from(self.names.len()).ok()?.checked_add(FIRST)?;
        // What was restored counts even where there is less room now.
        (self.names.len() < self.most && next <= LAST).then(|| next.into())
    }

    /// Gives the next address to a name that has none.
    pub(crate) fn assign(&mut self, name: &Hostname) -> Option<Assignment> {
        let address = self.next().filter(|_| self.address(name).is_none())?;
        self.put(name.clone(), address);
        Some(Assignment { name: name.clone(), address })
    }

    /// Whether `address` may ever stand for a name, or is the gateway's.
    pub(crate) fn is_synthetic(address: Ipv4Addr) -> bool {
        u32::from(address) >> 17 == FIRST >> 17
    }

    fn put(&mut self, name: Hostname, address: Ipv4Addr) {
        self.names.push(name.clone());
        self.addresses.insert(name, address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Hostname {
        Hostname::parse(&format!("n{number}.test")).unwrap()
    }

    #[test]
    fn each_address_stands_for_one_name_and_the_other_way() {
        let mut pool = Pool::restore(Vec::new(), usize::MAX).unwrap();
        let mut count = 0;
        while let Some(given) = pool.assign(&name(count)) {
            assert_eq!(pool.name(given.address), Some(name(count)));
            assert_eq!(pool.address(&name(count)), Some(given.address));
            assert!(Pool::is_synthetic(given.address));
            assert_eq!(pool.assign(&name(count)), None);
            count += 1;
        }
        assert_eq!(count, 130_816);
        assert_eq!(pool.address(&name(0)), Some(Ipv4Addr::new(198, 18, 1, 0)));
        assert_eq!(pool.address(&name(count - 1)), Some(Ipv4Addr::new(198, 19, 255, 255)));
        assert_eq!(pool.name(Ipv4Addr::new(198, 18, 0, 255)), None);
        assert_eq!(pool.name(Ipv4Addr::new(198, 20, 0, 0)), None);
    }

    #[test]
    fn what_is_restored_goes_on_where_it_was() {
        let mut pool = Pool::restore(Vec::new(), 10).unwrap();
        for number in 0..5 {
            pool.assign(&name(number)).unwrap();
        }
        let mut restored = Pool::restore(pool.snapshot(), 10).unwrap();
        assert_eq!(restored.snapshot(), pool.snapshot());
        assert_eq!(restored.assign(&name(9)), pool.assign(&name(9)));
        assert_eq!(restored.address(&name(3)), pool.address(&name(3)));

        let mut twice = pool.snapshot();
        twice[1].name = name(0);
        assert!(Pool::restore(twice, 10).is_err());
        let mut gap = pool.snapshot();
        gap.remove(2);
        assert!(Pool::restore(gap, 10).is_err());
        let control = Assignment { name: name(0), address: CONTROL_ADDRESS };
        assert!(Pool::restore(vec![control], 10).is_err());
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut pool = Pool::restore(Vec::new(), 2).unwrap();
        assert!(pool.assign(&name(0)).is_some() && pool.assign(&name(1)).is_some());
        assert_eq!(pool.assign(&name(2)), None);
        assert_eq!(pool.name(CONTROL_ADDRESS).unwrap().as_str(), CONTROL_NAME);
        assert_eq!(pool.assign(&Hostname::parse(CONTROL_NAME).unwrap()), None);
    }
}
