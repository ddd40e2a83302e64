use std::fs;
use std::path::Path;

/// The seeds of a target, by name. Panics where there are none, or no fuzz target: a test of nothing must not pass.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    let folder = fuzz.join("seeds").join(target);
    let mut names: Vec<_> = match fs::read_dir(&folder) {
        Ok(names) => names.map(|entry| entry.expect("a seed's name").path()).collect(),
        Err(error) => panic!("no seeds of fuzz target `{target}` in {}: {error}", folder.display()),
    };
    assert!(!names.is_empty(), "no seeds of fuzz target `{target}` in {}", folder.display());
    let program = fuzz.join("fuzz_targets").join(target).with_extension("rs");
    assert!(program.is_file(), "no fuzz target {}", program.display());
    names.sort();
    let read = |path: &_| fs::read(path).unwrap_or_else(|error| panic!("read a seed of `{target}`: {error}"));
    names.iter().map(read).collect()
}
