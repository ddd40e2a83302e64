use sandbar_contract::Fault;

/// The reference backend's name for a failure.
pub(crate) fn fault_of(fault: Fault) -> Option<sandbar_core::Fault> {
    Some(match fault {
        Fault::Lookup => sandbar_core::Fault::Lookup,
        Fault::Listing => sandbar_core::Fault::Listing,
        Fault::Create => sandbar_core::Fault::Create,
        Fault::Destroy => sandbar_core::Fault::Destroy,
        Fault::Volumes => sandbar_core::Fault::Volumes,
        Fault::Templates => sandbar_core::Fault::Templates,
        Fault::Stat => sandbar_core::Fault::Stat,
        Fault::Exit => sandbar_core::Fault::Exit,
        _ => return None,
    })
}
