/// Places in the table. Files with several names, and deleted files in several processes' hands, are rarely more than
/// thousands; the table takes half a megabyte of which only what is used gets real.
const PLACES: usize = 1 << 16;
/// How full it may get: lookups stay short.
const MOST: usize = PLACES / 4 * 3;

/// Files that were counted, so that they count once. Of fixed size, since nothing may be allocated while it is used.
#[derive(Debug)]
pub(crate) struct Seen {
    places: Vec<u64>,
    used: usize,
}

/// Whether a file was met before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    First,
    Again,
    /// There is no room to remember it.
    Full,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self { places: vec![0; PLACES], used: 0 }
    }

    pub(super) fn meet(&mut self, device: u64, inode: u64) -> Met {
        // Inodes of one device differ in their low bits, devices are few: a product with an odd number spreads both. The
        // highest bit keeps a key from being 0, which is an empty place.
        let key = (inode ^ device.rotate_left(48)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63;
        let mut place = usize::try_from(key >> 40).unwrap_or(0) % PLACES;
        loop {
            match self.places[place] {
                0 if self.used == MOST => return Met::Full,
                0 => {
                    self.places[place] = key;
                    self.used += 1;
                    return Met::First;
                }
                known if known == key => return Met::Again,
                _ => place = (place + 1) % PLACES,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_met_once_and_a_full_table_says_so() {
        let mut seen = Seen::new();
        assert_eq!(seen.meet(1, 2), Met::First);
        assert_eq!(seen.meet(1, 2), Met::Again);
        assert_eq!(seen.meet(2, 2), Met::First);
        let met = (10..200_000).map(|inode| seen.meet(1, inode)).filter(|met| *met == Met::First).count();
        assert_eq!(met, MOST - 2);
        assert_eq!((seen.meet(1, 2), seen.meet(1, 1_000_000)), (Met::Again, Met::Full));
    }
}
