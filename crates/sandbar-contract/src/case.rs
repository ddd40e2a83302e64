use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::bed::Bed;
use crate::check::Checked;

/// How long a case may take: generous on a loaded machine with two cores, short enough that a hang is found.
pub(crate) const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// One sentence of the contract, tested.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name: the noun it is about, a dot, the sentence.
    pub name: &'static str,
    pub(crate) check: for<'a> fn(&'a Bed<'a>) -> BoxFuture<'a, Checked>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// All cases, in the order in which they are reported.
pub fn cases() -> Vec<Case> {
    crate::cases::all()
}

/// The cases of a module: `group!("noun"; sentence, sentence)`.
macro_rules! group {
    ($noun:literal; $($sentence:ident),* $(,)?) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[
            $($crate::case::Case {
                name: concat!($noun, ".", stringify!($sentence)),
                check: |bed| Box::pin($sentence(bed)),
            }),*
        ];
    };
}

pub(crate) use group;
