//! What holds for any bytes, and slow, obvious second readers to compare with.

use sandbar_core::Hostname;

use super::{Chunks, ClientHello, Framing, HeadFlaw, Peek, check_head};

/// As the gateway has it.
const MAX_HELLO: usize = 16 << 10;
/// The host that the seeds name.
const HOST: &str = "allowed.test";

/// The first bytes of a TLS client. What is taken for a hello to a host is one to the TLS library too, to that host; and nothing depends on how the bytes
/// are cut.
pub(crate) fn client_hello(data: &[u8]) {
    let host = Hostname::parse(HOST).expect("a host name");
    let whole = ClientHello::read(data, MAX_HELLO);
    match &whole {
        Peek::Done(hello) => {
            assert!(hello.len <= data.len() && hello.len <= MAX_HELLO);
            assert_eq!(ClientHello::read(&data[..hello.len], MAX_HELLO), whole);
            let names = names_in(&data[..hello.len]).expect("the second reader finds a hello");
            match &hello.server_name {
                Some(name) => assert_eq!(names, std::slice::from_ref(name), "the names"),
                None => assert!(names.is_empty(), "the second reader finds {names:?}"),
            }
            if hello.check(&host).is_ok() {
                let name = names[0].to_ascii_lowercase();
                assert!(name == HOST.as_bytes() || name == format!("{HOST}.").into_bytes(), "{name:?}");
            }
            if let Some(theirs) = as_the_library_has_it(&data[..hello.len]) {
                assert_eq!(Some(theirs), lower(hello));
            }
        }
        Peek::NeedMore(needed) => assert!(*needed > data.len() && *needed <= MAX_HELLO),
        Peek::Bad(flaw) => assert!(!flaw.to_string().is_empty()),
    }
    let step = (data.len() / 64).max(1);
    for cut in (0..data.len()).step_by(step) {
        match (ClientHello::read(&data[..cut], MAX_HELLO), &whole) {
            // What is refused early is refused; what needs more needs no more than there was.
            (Peek::Bad(_), whole) => assert!(matches!(whole, Peek::Bad(_))),
            (Peek::NeedMore(needed), Peek::Done(hello)) => assert!(needed <= hello.len && needed > cut),
            (Peek::Done(early), Peek::Done(hello)) => assert!(early == *hello && cut >= hello.len),
            (Peek::NeedMore(needed), _) => assert!(needed > cut),
            (Peek::Done(early), whole) => panic!("{early:?} of a start, and {whole:?} of all"),
        }
    }
}

fn lower(hello: &ClientHello) -> Option<Vec<u8>> {
    let name = hello.server_name.as_ref()?.to_ascii_lowercase();
    Some(name.strip_suffix(b".").map(<[u8]>::to_vec).unwrap_or(name))
}

/// The name as `rustls` reads it, if it takes the bytes for a hello with a name; it leaves out what it takes for none.
fn as_the_library_has_it(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut acceptor = rustls::server::Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).ok()? == 0 {
            break;
        }
    }
    let accepted = acceptor.accept().ok()??;
    let name = accepted.client_hello().server_name()?.to_ascii_lowercase();
    Some(name.trim_end_matches('.').as_bytes().to_vec())
}

/// All entries of all lists of server names, read without care for what is wrong elsewhere.
fn names_in(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut message = Vec::new();
    let mut rest = bytes.to_vec();
    while rest.len() >= 5 {
        let size = usize::from(rest[3]) * 256 + usize::from(rest[4]);
        message.extend(rest.drain(..(5 + size).min(rest.len())).skip(5));
    }
    let take = |at: &mut usize, count: usize| -> Option<usize> {
        let value =
            message.get(*at..*at + count)?.iter().fold(0, |value, byte| value * 256 + usize::from(*byte));
        *at += count;
        Some(value)
    };
    let mut at = 0;
    (take(&mut at, 1)? == 1).then_some(())?;
    take(&mut at, 3)?;
    at += 34;
    for size in [1, 2, 1] {
        at += take(&mut at, size)?;
    }
    let mut names = Vec::new();
    if at == message.len() {
        return Some(names);
    }
    take(&mut at, 2)?;
    while at < message.len() {
        let kind = take(&mut at, 2)?;
        let end = take(&mut at, 2)? + at;
        if kind == 0 {
            take(&mut at, 2)?;
            while at < end {
                take(&mut at, 1)?;
                let size = take(&mut at, 2)?;
                names.push(message.get(at..at + size)?.to_vec());
                at += size;
            }
        }
        at = end;
    }
    Some(names)
}

/// The head of a request, and what follows it. What is taken for a head is the same to the library that reads it next, and to a reader that takes every bare
/// CR or LF for a line's end.
pub(crate) fn request_head(data: &[u8]) {
    let whole = check_head(data);
    for cut in (0..data.len()).step_by((data.len() / 64).max(1)) {
        match (check_head(&data[..cut]), &whole) {
            (Peek::Bad(_), whole) => assert!(matches!(whole, Peek::Bad(_)), "{whole:?}"),
            (Peek::Done(early), Peek::Done(head)) => assert_eq!(early, *head),
            (Peek::NeedMore(needed), Peek::Done(head)) => assert!(needed <= head.len && cut < head.len),
            (Peek::NeedMore(needed), _) => assert!(needed > cut),
            (Peek::Done(early), whole) => panic!("{early:?} of a start, and {whole:?} of all"),
        }
    }
    let Peek::Done(head) = whole else { return };
    let bytes = &data[..head.len];
    let mut fields = vec![httparse::EMPTY_HEADER; super::MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    // A target that the library refuses goes nowhere.
    if let Ok(status) = request.parse(bytes) {
        assert_eq!(status, httparse::Status::Complete(head.len));
        compare(head.body, |name| {
            let named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            named.map(|field| field.value.to_vec()).collect()
        });
    }
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    assert!(text.ends_with("\r\n\r\n") && text.matches("\r\n\r\n").count() == 1);
    let lines: Vec<_> = text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), text.matches("\r\n").count() - 1);
    compare(head.body, |name| {
        let fields = lines[1..].iter().filter_map(|line| line.split_once(':'));
        let named = fields.filter(|(found, _)| found.trim().eq_ignore_ascii_case(name));
        named
            .map(|(_, value)| value.trim().chars().map(|c| u8::try_from(c).expect("a byte")).collect())
            .collect()
    });
}

/// Where the body ends, by the values of fields.
fn compare(body: Framing, values: impl Fn(&str) -> Vec<Vec<u8>>) {
    assert_eq!(values("host").len(), 1);
    let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
    match body {
        Framing::Chunked => {
            assert!(
                lengths.is_empty() && encodings.len() == 1 && encodings[0].eq_ignore_ascii_case(b"chunked")
            );
        }
        Framing::Length(length) => {
            assert!(encodings.is_empty() && lengths.len() <= 1);
            let read = lengths.first().map(|text| String::from_utf8_lossy(text).parse().expect("a number"));
            assert_eq!(read.unwrap_or(0), length);
        }
    }
}

/// A chunked body, after a byte that says how it is cut. It ends where a reader that has all of it at once sees its end.
pub(crate) fn chunked_body(data: &[u8]) {
    let Some((step, data)) = data.split_first() else { return };
    let mut chunks = Chunks::default();
    let whole = chunks.advance(data);
    let mut pieces = Chunks::default();
    let mut taken = Ok(0);
    for piece in data.chunks(usize::from(*step).max(1)) {
        let Ok(before) = taken else { break };
        if pieces.is_over() {
            break;
        }
        taken = pieces.advance(piece).map(|count| before + count);
    }
    assert_eq!(taken, whole);
    if whole.is_ok() {
        assert_eq!(pieces, chunks);
    }
    if let (Ok(count), true) = (whole, chunks.is_over()) {
        assert_eq!(end_of(data), Some(count));
        assert_eq!(Chunks::default().advance(&data[..count]), Ok(count));
    }
    assert_ne!(whole, Err(HeadFlaw::NotHttp), "a body is no head");
}

/// Where a chunked body ends.
fn end_of(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    let line = |at: &mut usize| {
        let end = *at + data[*at..].windows(2).position(|end| end == b"\r\n")?;
        let line = &data[*at..end];
        *at = end + 2;
        Some(line)
    };
    loop {
        let size = line(&mut at)?.split(|byte| *byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        at += size;
        line(&mut at)?.is_empty().then_some(())?;
    }
    while !line(&mut at)?.is_empty() {}
    Some(at)
}
