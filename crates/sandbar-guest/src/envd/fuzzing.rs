use super::{listing, liveness, table};

/// Whatever comes, what is read of it keeps its promises.
pub(crate) fn check_script_output(data: &[u8]) {
    for row in table::rows(data, &[]) {
        assert!(row.pid > 2 && row.parent.is_none_or(|parent| parent > 2));
        assert!(row.argv.iter().map(|word| word.len() + 1).sum::<usize>() <= 4096);
    }
    if let Ok(entries) = listing::read(data) {
        for (_, entry) in entries {
            assert!(entry.mode <= 0o7777 && entry.path.as_bytes().starts_with(b"/"));
        }
    }
    liveness::check(data);
}
