use fastrand::Rng;
use sandbar_core::Hostname;

use super::made::{Made, framed, list, name};
use crate::peek::{ClientHello, HelloFlaw, Peek, fuzzing};

const MAX: usize = 16 << 10;

fn read(bytes: &[u8]) -> Peek<ClientHello, HelloFlaw> {
    ClientHello::read(bytes, MAX)
}

/// What is said of a connection to `allowed.test` that starts so.
fn verdict(bytes: &[u8]) -> Result<(), HelloFlaw> {
    match read(bytes) {
        Peek::Done(hello) => hello.check(&Hostname::parse("allowed.test").unwrap()),
        Peek::Bad(flaw) => Err(flaw),
        Peek::NeedMore(needed) => panic!("{needed} bytes for {}", bytes.len()),
    }
}

#[test]
fn a_hello_names_its_host_however_it_is_cut() {
    let made = Made::naming(b"allowed.test");
    let message = made.message();
    for records in [&[][..], &[1], &[1, 2, 3], &[4], &[message.len() - 1], &[1; 100]] {
        let bytes = made.clone().in_records(records).bytes();
        assert_eq!(verdict(&bytes), Ok(()), "{records:?}");
        for cut in 0..bytes.len() {
            assert!(matches!(read(&bytes[..cut]), Peek::NeedMore(n) if n > cut && n <= bytes.len()), "{cut}");
        }
        // What follows is no part of it.
        let more = [&bytes[..], b"early data"].concat();
        assert!(matches!(read(&more), Peek::Done(hello) if hello.len == bytes.len()));
    }
    for same in ["ALLOWED.test", "allowed.test."] {
        assert_eq!(verdict(&Made::naming(same.as_bytes()).bytes()), Ok(()));
    }
}

#[test]
fn what_names_another_host_none_or_two_is_refused() {
    use HelloFlaw::{Malformed, NoName, NotAName, OtherName};
    for (name, flaw) in [
        (&b"evil.test"[..], OtherName),
        (b"allowed.test.evil.test", OtherName),
        (b"evilallowed.test", OtherName),
        (b"sub.allowed.test", OtherName),
        (b"allowed.test\0.evil.test", NotAName),
        (b"allowed.test\0", NotAName),
        (b"192.0.2.1", NotAName),
        (b"::1", NotAName),
        (b"user@allowed.test", NotAName),
        (b"allowed.test:443", NotAName),
        ("аllowed.test".as_bytes(), NotAName),
        (b"allowed.test..", NotAName),
        (b"", Malformed("empty server name")),
    ] {
        assert_eq!(verdict(&Made::naming(name).bytes()), Err(flaw), "{}", name.escape_ascii());
    }
    let allowed = &b"allowed.test"[..];
    let nameless = Made::without_name();
    assert_eq!(verdict(&nameless.bytes()), Err(NoName));
    for (data, what) in [
        (list(&[(0, allowed), (0, b"evil.test")]), "more than one server name"),
        (list(&[(0, allowed), (0, allowed)]), "more than one server name"),
        (list(&[(0, allowed), (1, b"x")]), "more than one server name"),
        (list(&[(1, allowed)]), "server name type"),
        (list(&[]), "server name"),
        (Vec::new(), "server name"),
        ([list(&[(0, allowed)]), vec![0]].concat(), "server name"),
    ] {
        assert_eq!(verdict(&nameless.clone().with(0, &data).bytes()), Err(Malformed(what)), "{data:?}");
    }
    let twice = Made::naming(allowed).with(0, &list(&[(0, b"evil.test")])).bytes();
    assert_eq!(verdict(&twice), Err(Malformed("an extension twice")));
    // Browsers pretend to encrypt; the outer name counts.
    let encrypted = Made::naming(allowed).with(0xfe0d, &[0; 40]).bytes();
    assert!(matches!(read(&encrypted), Peek::Done(hello) if hello.encrypted));
    assert_eq!(verdict(&encrypted), Ok(()));
}

#[test]
fn what_is_no_hello_is_refused_as_soon_as_it_shows() {
    use HelloFlaw::{Malformed, NotTls, TooLong};
    let message = Made::naming(b"allowed.test").message();
    let mut server_hello = message.clone();
    server_hello[0] = 2;
    for (bytes, flaw) in [
        (b"G".to_vec(), NotTls),
        (b"SSH-2.0".to_vec(), NotTls),
        // The hello of version 2.
        (vec![0x80, 0x2e, 1, 3, 1], NotTls),
        (vec![22, 2], NotTls),
        (vec![22, 3, 9], NotTls),
        (vec![21, 3, 1, 0, 2, 1, 0], NotTls),
        (vec![22, 3, 1, 0, 0], Malformed("record length")),
        (vec![22, 3, 1, 0x40, 1], Malformed("record length")),
        (framed(&server_hello, &[]), Malformed("first message")),
        ([22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff].to_vec(), TooLong),
        (framed(&[&message[..], &[0]].concat(), &[]), Malformed("bytes after the hello")),
        ([&framed(&message[..9], &[])[..], &[20, 3, 3, 0, 1, 1]].concat(), Malformed("record type")),
    ] {
        assert_eq!(read(&bytes), Peek::Bad(flaw), "{bytes:?}");
    }
    let long = Made::naming(b"allowed.test").with(21, &[0; MAX]).in_records(&[16000]).bytes();
    assert_eq!(read(&long), Peek::Bad(TooLong));
    let frames = Made::naming(b"allowed.test").with(21, &[0; 4000]).in_records(&vec![1; 4000]).bytes();
    assert_eq!(read(&frames), Peek::Bad(TooLong), "what frames it counts");
}

/// Hellos of all sorts, and each with some bytes changed; what is read is compared with second readers. `$SANDBAR_SOAK` says how many.
#[test]
fn generated_hellos_are_read_as_second_readers_read_them() {
    let size = std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(10_000);
    let mut random = Rng::with_seed(4);
    let mut good = 0;
    for _ in 0..size {
        let mut made =
            if random.u8(..20) == 0 { Made::without_name() } else { Made::naming(&name(&mut random)) };
        for _ in 0..random.usize(..3) {
            let data = vec![random.u8(..); random.usize(..40)];
            made = made.with(random.u16(1..100), &data);
        }
        if random.u8(..10) == 0 {
            made = made.with(0, &list(&[(random.u8(..2), &name(&mut random))]));
        }
        let at = random.usize(..=made.extensions.len());
        made.extensions.rotate_left(at % 3);
        let records: Vec<_> = (0..random.usize(..5)).map(|_| random.usize(1..80)).collect();
        let mut bytes = made.in_records(&records).bytes();
        if random.bool() {
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        fuzzing::client_hello(&bytes);
        if let Peek::Done(hello) = read(&bytes) {
            good += usize::from(hello.check(&Hostname::parse("allowed.test").unwrap()).is_ok());
        }
    }
    assert!(good > size / 20, "{good} of {size} are to the host");
}
