use crate::ids::{ID_COUNT, SubIds};

/// Ids of a range that are needed at least: with fewer there is no `user` (1000) inside.
const MIN_COUNT: u32 = crate::ids::USER_ID;

/// What `/etc/subuid` and `/etc/subgid` give the user; `None` where either has nothing big enough.
pub(super) fn of(uid: u32) -> Option<SubIds> {
    let read = |path| std::fs::read_to_string(path).ok();
    let (uids, gids) = (read("/etc/subuid")?, read("/etc/subgid")?);
    let passwd = read("/etc/passwd").unwrap_or_default();
    parse(&uids, &gids, &passwd, uid)
}

pub(crate) fn parse(uids: &str, gids: &str, passwd: &str, uid: u32) -> Option<SubIds> {
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    });
    let range = |text: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let owner = fields.next()?;
            let base: u32 = fields.next()?.parse().ok()?;
            let count: u32 = fields.next()?.trim().parse().ok()?;
            let own = Some(owner) == name || owner == number;
            // The host's root in a range is a mistake, and would be root over the host's files.
            (own && base > 0 && count >= MIN_COUNT && base.checked_add(count).is_some())
                .then_some((base, count))
        })
    };
    let ((uid_base, uid_count), (gid_base, gid_count)) = (range(uids)?, range(gids)?);
    Some(SubIds { uid_base, gid_base, count: uid_count.min(gid_count).min(ID_COUNT - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\n";

    #[test]
    fn by_name_and_by_number() {
        let by_name = parse("root:1:65536\nann:100000:65536\n", "1001:300000:2000\n", PASSWD, 1001);
        assert_eq!(by_name, Some(SubIds { uid_base: 100_000, gid_base: 300_000, count: 2000 }));
    }

    #[test]
    fn a_range_without_room_for_the_user_is_none() {
        assert_eq!(parse("ann:100000:10\n", "ann:100000:65536\n", PASSWD, 1001), None);
        assert_eq!(parse("", "", PASSWD, 1001), None);
        assert_eq!(parse("ann:0:65536\n", "ann:1:65536\n", PASSWD, 1001), None);
        assert_eq!(parse("ann:4294967295:65536\n", "ann:1:65536\n", PASSWD, 1001), None);
    }
}
