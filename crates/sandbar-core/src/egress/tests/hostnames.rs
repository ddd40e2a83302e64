use fastrand::Rng;

use crate::egress::fuzzing::{Compared, compare_names};

/// Names that are made once the size is not said: about two seconds without optimisation.
const QUICK: usize = 20_000;
/// Most changes of one name.
const CHANGES: usize = 4;

/// What is allowed.
const PATTERNS: &[&str] =
    &["allowed.test", "*.allowed.test", "bücher.test", "*.XN--bcher-kva.test.", "a.b.allowed.test", "*.test"];

/// What names are made of: allowed ones, near ones, and addresses as some resolvers take them.
const NAMES: &[&str] = &[
    "allowed.test",
    "allowed.test",
    "allowed.test",
    "sub.allowed.test",
    "a.b.allowed.test",
    "bücher.test",
    "xn--bcher-kva.test",
    "w.xn--bcher-kva.test",
    "allowed.test.evil.test",
    "evilallowed.test",
    "evil.example",
    "test",
    "localhost",
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0177.0.0.01",
    "2130706433",
    "0x7f000001",
    "::ffff:127.0.0.1",
    "[::1]",
];

/// What is put into a name.
const PIECES: &[&str] = &[
    "\0",
    "\0.evil.test",
    ".",
    "..",
    "。",
    "．",
    "｡",
    "\u{ad}",
    "\u{200b}",
    "\u{feff}",
    "\u{202e}",
    " ",
    "\t",
    "\r\n",
    "\n",
    "\u{a0}",
    "@",
    "user@",
    "user:pw@",
    "@evil.test",
    ":443",
    ":80:80",
    "/",
    "/path",
    "//",
    "\\",
    "?",
    "#",
    "%00",
    "%2e",
    "%2E",
    "%",
    "_",
    "*",
    "*.",
    "-",
    "--",
    "xn--",
    "ｘn--",
    "0x",
    "1",
    ".1",
    ".0x7f",
    "évil",
    "evil",
    ".evil.test",
    "evil.",
    "＠",
    "／",
    "％",
    "１",
    "①",
    "ß",
    "ı",
    "日本",
];

/// Letters beside others that look the same, or become the same.
const ALIKE: &[(char, &str)] = &[
    ('a', "AаАａαⓐª𝐚"),
    ('e', "EеЕｅℯⒺ𝓮é"),
    ('o', "OоОｏο"),
    ('l', "L1ıＬ"),
    ('s', "Sſｓß"),
    ('t', "TｔＴ"),
    ('w', "Wｗ"),
    ('d', "Dｄ"),
    ('ü', "Üuü"),
    ('.', "。．｡-"),
    ('1', "１¹①𝟏l"),
    ('-', "－_"),
];

fn one<T: Copy>(of: &[T], random: &mut Rng) -> T {
    of[random.usize(..of.len())]
}

fn changed(name: &mut Vec<char>, random: &mut Rng) {
    let at = random.usize(..=name.len());
    let put = |name: &mut Vec<char>, at: usize, text: &str| drop(name.splice(at..at, text.chars()));
    match random.u8(..14) {
        0..3 => put(name, at, one(PIECES, random)),
        3 => put(name, 0, one(PIECES, random)),
        4 => name.extend(one(PIECES, random).chars()),
        5..8 if at < name.len() => {
            if let Some((_, alike)) = ALIKE.iter().find(|(letter, _)| *letter == name[at]) {
                let alike: Vec<char> = alike.chars().collect();
                name[at] = one(&alike, random);
            }
        }
        8 if at < name.len() => drop(name.remove(at)),
        9 => name.push('.'),
        10 => {
            let other = one(NAMES, random);
            put(name, at, &format!("{}{other}", one(&[".", "\0", "", "@", "。"], random)));
        }
        11 => {
            // Around the longest label, or the longest name.
            let times = one(&[40, 55, 62, 63, 64, 120, 240, 260, 1020], random);
            let unit = one(&["a", "a.", "ü", "b-", "\u{ad}"], random);
            put(name, at, &unit.repeat(times));
        }
        12 => name.iter_mut().for_each(|c| *c = c.to_ascii_uppercase()),
        13 if at < name.len() => name[at] = char::from(random.u8(..128)),
        _ => {}
    }
}

/// A name, changed or not, that need not be text.
fn made(random: &mut Rng) -> Vec<u8> {
    let mut name: Vec<char> = one(NAMES, random).chars().collect();
    for _ in 0..random.usize(..=CHANGES) {
        changed(&mut name, random);
    }
    let mut bytes = name.into_iter().collect::<String>().into_bytes();
    if random.u8(..50) == 0 && !bytes.is_empty() {
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(128..);
    }
    bytes
}

/// Names of all sorts against patterns of all sorts: nothing is meant but what a slow reader, that shares nothing with ours, says. `$SANDBAR_SOAK` says
/// how many.
#[test]
fn generated_names_are_read_as_a_slow_reader_reads_them() {
    let size = std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(QUICK);
    let mut random = Rng::with_seed(4);
    let (mut meant, mut other, mut refused, mut unsure) = (0, 0, 0, 0);
    for _ in 0..size {
        let name = made(&mut random);
        let mut pattern = one(PATTERNS, &mut random).to_owned();
        if random.u8(..20) == 0 {
            let mut characters = pattern.chars().collect();
            changed(&mut characters, &mut random);
            pattern = characters.into_iter().collect();
        }
        *match compare_names(&pattern, &name) {
            Compared::Meant => &mut meant,
            Compared::Other => &mut other,
            Compared::Refused => &mut refused,
            Compared::Unsure => &mut unsure,
        } += 1;
    }
    println!(
        "{size} names: {meant} meant, {other} others, {refused} refused, {unsure} of which the slow reader is not sure"
    );
    // Each kind is there, and next to nothing escapes the comparison.
    assert!(meant > size / 20 && other > size / 20 && refused > size / 5 && unsure < size / 20);
}
