use sandbar_core::ErrorKind;

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, expect_error, part};

group!("guest"; protocol_has_a_name_and_a_version, connects_more_than_once, of_a_gone_sandbox_is_not_found);

async fn protocol_has_a_name_and_a_version(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let protocol = part(sandbox.guest(), &*sandbox, "guest")?.protocol().to_owned();
    let Some((name, version)) = protocol.split_once('/') else {
        return crate::check::fail(format!("`{protocol}` is no protocol: expected NAME/VERSION"));
    };
    ensure!(!name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()), "`{protocol}`");
    Ok(())
}

async fn connects_more_than_once(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let guest = part(sandbox.guest(), &*sandbox, "guest")?;
    let first = guest.connect().await?;
    let second = guest.connect().await?;
    drop((first, second));
    Ok(())
}

async fn of_a_gone_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.guest(), &*shared, "guest")?;
    let sandbox = bed.fresh().await?;
    sandbox.destroy().await?;
    let guest = part(sandbox.guest(), &*sandbox, "guest")?;
    expect_error(guest.connect().await, &[ErrorKind::NotFound], "a connection to a gone guest").map(drop)
}
