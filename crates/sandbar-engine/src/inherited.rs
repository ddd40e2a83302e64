use rustix::io::Errno;

use crate::sys;

/// Closes every descriptor but standard input, output and error, for a process that outlives whoever started it: a lock, a pipe or a secret
/// file that its starter left open would live as long as it does.
///
/// To be called first thing in `main`, before anything opens a descriptor or starts a thread: what the process opened itself is closed, too,
/// and whoever owns that would go on to use a number that is another file's by then.
#[expect(unsafe_code, reason = "whoever starts a process decides what it inherits, which no type tells")]
pub fn close_inherited() -> Result<(), Errno> {
    // SAFETY: by the rule above nothing in this process has opened anything yet, so what there is was inherited and nothing owns it.
    unsafe { sys::close_all_but_standard() }
}
