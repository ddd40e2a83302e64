use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use sandbar_core::DecisionReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::*;
use crate::control::{CONTROL_ADDRESS, CONTROL_NAME};
use crate::limits::Limits;
use crate::testing::{Bench, all_but, name, rules};

fn question(asked: Name, kind: RecordType) -> Message {
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(asked, kind));
    question.set_edns(Edns::new());
    question
}

fn ask(bench: &Bench, question: &Message) -> Message {
    let responder = Responder::new(bench.gateway.state().clone());
    Message::from_vec(&responder.answer(&question.to_vec().unwrap()).unwrap()).unwrap()
}

fn ask_for(bench: &Bench, text: &str, kind: RecordType) -> Message {
    let answer = ask(bench, &question(Name::from_ascii(text).unwrap(), kind));
    assert!(answer.metadata.recursion_available && answer.metadata.recursion_desired);
    answer
}

fn explained(answer: &Message) -> Option<(u16, String)> {
    answer.edns.as_ref()?.options().options.iter().find_map(|(_, option)| match option {
        EdnsOption::Unknown(15, bytes) => {
            Some((u16::from_be_bytes([bytes[0], bytes[1]]), String::from_utf8(bytes[2..].to_vec()).unwrap()))
        }
        _ => None,
    })
}

#[tokio::test]
async fn an_allowed_name_gets_an_address_of_its_own_and_the_same_each_time() {
    let bench = Bench::start(rules(&["a.test", "*.w.test:22"])).await;
    let first = bench.lookup("a.test.").unwrap();
    assert_eq!(first.to_string(), "198.18.1.0");
    assert_eq!(bench.lookup("A.TEST."), Some(first));
    let below = bench.lookup("x.w.test.").unwrap();
    assert_ne!(below, first);
    let answer = ask_for(&bench, "a.TEST.", RecordType::A);
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    assert_eq!(answer.answers.len(), 1);
    assert_eq!(answer.answers[0].name.to_string(), "a.TEST.", "the case that was asked for comes back");
    let kept: Vec<_> = bench.journal.kept.lock().unwrap().iter().map(|a| a.name.to_string()).collect();
    assert_eq!(kept, ["a.test", "x.w.test"]);
    assert_eq!(bench.lookup(CONTROL_NAME), Some(CONTROL_ADDRESS));
    assert!(bench.outside.asked().is_empty());
}

#[tokio::test]
async fn a_denied_name_does_not_exist_and_nobody_outside_is_asked() {
    let bench = Bench::start(rules(&["allowed.test", "*.w.test"])).await;
    for text in [
        "evil.test.",
        "w.test.",
        "evilallowed.test.",
        "allowed.test.evil.test.",
        "a.allowed.test.",
        "localhost.",
    ] {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::ANY] {
            let answer = ask_for(&bench, text, kind);
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{text} {kind}");
            assert!(answer.answers.is_empty());
            let (code, why) = explained(&answer).unwrap();
            assert_eq!(code, 17);
            assert!(why.contains("egress policy"), "{why}");
        }
    }
    let (_, why) = explained(&ask_for(&bench, "evil.test.", RecordType::A)).unwrap();
    assert_eq!(why, "denied by the sandbox's egress policy; a retry will not help");
    assert!(bench.outside.asked().is_empty() && bench.outside.dialled().is_empty());
    assert!(bench.journal.kept.lock().unwrap().is_empty());
    assert_eq!(bench.decision(DecisionReason::NotAllowed).await.name.as_deref(), Some("evil.test"));
}

#[tokio::test]
async fn nothing_but_addresses_of_version_4_is_served() {
    let bench = Bench::start(all_but(&[])).await;
    for kind in [
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::NULL,
        RecordType::ANY,
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::CNAME,
        RecordType::MX,
        RecordType::NS,
        RecordType::SOA,
        RecordType::SRV,
        RecordType::AXFR,
        RecordType::Unknown(65400),
    ] {
        let answer = ask_for(&bench, "a.test.", kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(answer.answers.is_empty() && answer.authorities.len() == 1, "{kind}");
        assert_eq!(explained(&answer).is_some(), kind != RecordType::AAAA, "{kind}");
    }
    let pointer = ask_for(&bench, "0.1.18.198.in-addr.arpa.", RecordType::PTR);
    assert_eq!(pointer.metadata.response_code, ResponseCode::NXDomain);
    assert!(bench.outside.asked().is_empty());
    assert!(bench.journal.kept.lock().unwrap().is_empty());
    let told = bench.decision(DecisionReason::RecordNotServed).await;
    assert_eq!(told.detail.as_deref(), Some("TXT"));
}

#[tokio::test]
async fn what_is_no_host_name_is_none_whatever_it_looks_like_put_together() {
    let bench = Bench::start(rules(&["allowed.test", "*.w.test"])).await;
    let labels: [&[&[u8]]; 8] = [
        &[b"allowed.test"],
        &[b"allowed", b"test\0"],
        &[b"allowed.test", b"evil", b"test"],
        &[b"a.w", b"test"],
        &[b"x\0", b"w", b"test"],
        &[b"_srv", b"w", b"test"],
        &[b"\xff", b"w", b"test"],
        &[b"xn--zzzzzz---", b"w", b"test"],
    ];
    for labels in labels {
        let asked = Name::from_labels(labels.iter().copied()).unwrap();
        let answer = ask(&bench, &question(asked, RecordType::A));
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{labels:?}");
    }
    let root = ask(&bench, &question(Name::root(), RecordType::NS));
    assert_eq!(root.metadata.response_code, ResponseCode::NXDomain);
    let told = bench.decision(DecisionReason::NotAHostname).await;
    assert!(told.name.unwrap().chars().all(|c| c.is_ascii_graphic()));
    assert!(bench.journal.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_messages_are_refused_each_in_its_way() {
    let bench = Bench::start(all_but(&[])).await;
    let responder = Responder::new(bench.gateway.state().clone());
    let a = Name::from_ascii("a.test.").unwrap();

    let mut answer = question(a.clone(), RecordType::A);
    answer.metadata.message_type = MessageType::Response;
    assert_eq!(responder.answer(&answer.to_vec().unwrap()), None);
    assert_eq!(responder.answer(b""), None);
    assert_eq!(responder.answer(&[0; 11]), None);

    let code = |message: &Message| ask(&bench, message).metadata.response_code;
    let mut update = question(a.clone(), RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update), ResponseCode::NotImp);
    let mut two = question(a.clone(), RecordType::A);
    two.add_query(Query::query(a.clone(), RecordType::AAAA));
    assert_eq!(code(&two), ResponseCode::FormErr);
    let mut none = question(a.clone(), RecordType::A);
    none.queries.clear();
    assert_eq!(code(&none), ResponseCode::FormErr);
    let mut chaos = question(a, RecordType::A);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos), ResponseCode::Refused);
    let broken = responder.answer(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3fabc").unwrap();
    let broken = Message::from_vec(&broken).unwrap();
    assert_eq!((broken.metadata.id, broken.metadata.response_code), (0x1234, ResponseCode::FormErr));
}

#[tokio::test]
async fn there_are_budgets_for_questions_names_and_what_labels_say() {
    let bench = Bench::limited(all_but(&[]), {
        let mut limits = Limits::default();
        (limits.question_burst, limits.questions_per_second) = (3, 1);
        limits
    })
    .await;
    let responder = Responder::new(bench.gateway.state().clone());
    let codes: Vec<_> = (0..5)
        .map(|_| {
            let asked = question(Name::from_ascii("a.test.").unwrap(), RecordType::A).to_vec().unwrap();
            Message::from_vec(&responder.answer(&asked).unwrap()).unwrap().metadata.response_code
        })
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == ResponseCode::Refused).count(), 2);
    assert_eq!(bench.decision(DecisionReason::Limit).await.detail.as_deref(), Some("questions per second"));
    assert_eq!(bench.gateway.counters().questions, 5);

    let mut limits = Limits { names: 3, ..Limits::default() };
    limits.wildcard_label_bytes = 10;
    let policy = rules(&["*.w.test", "a.test", "b.test"]);
    let bench = Bench::limited(policy.clone(), limits.clone()).await;
    assert!(bench.lookup("1234567.w.test.").is_some());
    let refused = ask_for(&bench, "1234.w.test.", RecordType::A);
    assert!(refused.answers.is_empty(), "11 bytes are more than 10");
    assert!(explained(&refused).unwrap().1.ends_with("a retry will not help"), "{refused:?}");
    let told = bench.decision(DecisionReason::UsedUp).await;
    assert_eq!(told.detail.as_deref(), Some("bytes of names below wildcards"));
    assert!(bench.lookup("a.test.").is_some());
    assert!(bench.lookup("123.w.test.").is_some());
    let refused = ask_for(&bench, "b.test.", RecordType::A);
    assert!(refused.answers.is_empty(), "there are three names");
    assert!(explained(&refused).unwrap().1.ends_with("a retry will not help"), "{refused:?}");
    assert!(bench.lookup("1234567.w.test.").is_some());
    assert_eq!(bench.decision(DecisionReason::PoolExhausted).await.name.as_deref(), Some("b.test"));

    // A gateway that takes over goes on where the one before was.
    limits.names = 9;
    let assigned = bench.gateway.assignments();
    let next = Bench::with(policy, limits, assigned, Vec::new()).await;
    assert_eq!(next.lookup("123.w.test."), bench.lookup("123.w.test."));
    assert!(next.lookup("1.w.test.").is_none());
    assert_eq!(next.lookup("b.test.").unwrap().to_string(), "198.18.1.3");

    let limits = Limits { new_name_burst: 2, new_names_per_minute: 1, ..Limits::default() };
    let bench = Bench::limited(rules(&["*.w.test", "a.test"]), limits).await;
    let given = ["1.w.test.", "2.w.test.", "3.w.test.", "a.test."].map(|text| bench.lookup(text).is_some());
    assert_eq!(given, [true, true, false, true]);
}

#[tokio::test]
async fn a_name_that_can_not_be_written_down_gets_no_address() {
    let bench = Bench::start(rules(&["a.test"])).await;
    *bench.journal.breaks.lock().unwrap() = true;
    assert_eq!(ask_for(&bench, "a.test.", RecordType::A).metadata.response_code, ResponseCode::ServFail);
    assert!(bench.gateway.assignments().is_empty());
    *bench.journal.breaks.lock().unwrap() = false;
    assert!(bench.lookup("a.test.").is_some());
    assert_eq!(bench.gateway.assignments()[0].name, name("a.test"));
}

#[tokio::test]
async fn it_answers_datagrams_and_connections() {
    let bench = Bench::start(rules(&["a.test"])).await;
    let asked = question(Name::from_ascii("a.test.").unwrap(), RecordType::A);
    let bytes = asked.to_vec().unwrap();
    let is_right = |answer: &[u8]| {
        let answer = Message::from_vec(answer).unwrap();
        assert_eq!(answer.metadata.id, asked.metadata.id);
        assert!(matches!(answer.answers[0].data, RData::A(_)));
    };
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"nonsense", bench.dns_udp).await.unwrap();
    socket.send_to(&bytes, bench.dns_udp).await.unwrap();
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer).await.unwrap();
    is_right(&buffer[..length]);

    let mut stream = TcpStream::connect(bench.dns_tcp).await.unwrap();
    for _ in 0..2 {
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
        stream.read_exact(&mut answer).await.unwrap();
        is_right(&answer);
    }
    stream.write_u16(u16::MAX).await.unwrap();
    assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
}
