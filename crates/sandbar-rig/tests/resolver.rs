//! The resolver of the rig.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use sandbar_rig::{RESOLVER, Rig, inside};

/// For what happens within the machine.
const SOON: Duration = Duration::from_secs(5);
/// How long to listen for what must not come.
const SILENCE: Duration = Duration::from_millis(300);

fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Query;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(format!("{name}.")).unwrap(), kind));
    message.to_vec().unwrap()
}

fn asked(at: impl Into<IpAddr>, name: &str, kind: RecordType, limit: Duration) -> std::io::Result<Message> {
    let at = at.into();
    let socket = UdpSocket::bind(if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect((at, 53))?;
    socket.set_read_timeout(Some(limit))?;
    socket.send(&question(name, kind))?;
    let mut answer = [0; 4096];
    let length = socket.recv(&mut answer)?;
    Ok(Message::from_vec(&answer[..length]).expect("the answer is DNS"))
}

fn ask(name: &str, kind: RecordType) -> Message {
    asked(RESOLVER, name, kind, SOON).expect("the resolver answers")
}

fn data(message: &Message) -> Vec<String> {
    message.answers.iter().map(|record| record.data.to_string()).collect()
}

#[test]
fn the_system_finds_names() {
    inside("the_system_finds_names", || {
        let rig = Rig::connect();
        let (name, address) = rig.host("getent");
        let output = Command::new("getent").args(["ahosts", &name]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&address.v4.to_string()) && text.contains(&address.v6.to_string()), "{text}");
        let unknown = Command::new("getent").args(["ahosts", &rig.unique("unknown")]).output().unwrap();
        assert!(!unknown.status.success());
    });
}

#[test]
fn answers_are_what_was_published() {
    inside("answers_are_what_was_published", || {
        let rig = Rig::connect();
        let (name, alias) = (rig.unique("name"), rig.unique("alias"));
        rig.zone(&name).a([203, 0, 113, 7]).a([203, 0, 113, 8]).txt("a text").https(&["h2"]).ttl(7).publish();
        rig.zone(&alias).cname(&name).publish();
        let message = ask(&name, RecordType::A);
        assert_eq!(data(&message), ["203.0.113.7", "203.0.113.8"]);
        assert_eq!(message.answers[0].ttl, 7);
        assert_eq!(data(&ask(&alias, RecordType::A)), [&format!("{name}."), "203.0.113.7", "203.0.113.8"]);
        assert_eq!(data(&ask(&name, RecordType::TXT)), ["a text"]);
        let https = data(&ask(&name, RecordType::HTTPS)).join("");
        assert!(https.contains("alpn=h2") && https.contains("ech="), "{https}");
        let none = ask(&name, RecordType::AAAA);
        assert_eq!((none.metadata.response_code, none.answers.len()), (ResponseCode::NoError, 0));
    });
}

#[test]
fn answers_fail_as_told() {
    inside("answers_fail_as_told", || {
        let rig = Rig::connect();
        let (gone, broken, mute) = (rig.unique("gone"), rig.unique("broken"), rig.unique("mute"));
        let late = rig.unique("late");
        rig.zone(&gone).nxdomain().publish();
        rig.zone(&broken).servfail().publish();
        rig.zone(&mute).silent().publish();
        rig.zone(&late).a([203, 0, 113, 1]).delay(SILENCE).publish();
        assert_eq!(ask(&gone, RecordType::A).metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(ask(&rig.unique("unknown"), RecordType::A).metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(ask(&broken, RecordType::A).metadata.response_code, ResponseCode::ServFail);
        asked(RESOLVER, &mute, RecordType::A, SILENCE).expect_err("there is no answer");
        assert_eq!(rig.queries(&mute).len(), 1, "a query without an answer is a query");
        let start = Instant::now();
        assert_eq!(data(&ask(&late, RecordType::A)), ["203.0.113.1"]);
        assert!(start.elapsed() >= SILENCE);
    });
}

#[test]
fn answers_change_from_query_to_query() {
    inside("answers_change_from_query_to_query", || {
        let rig = Rig::connect();
        let name = rig.unique("rebinding");
        rig.zone(&name)
            .a([93, 184, 215, 14])
            .aaaa(Ipv6Addr::LOCALHOST)
            .ttl(0)
            .then()
            .a([10, 0, 0, 5])
            .ttl(0)
            .publish();
        assert_eq!(data(&ask(&name, RecordType::A)), ["93.184.215.14"]);
        assert_eq!(data(&ask(&name, RecordType::AAAA)), ["::1"], "each type counts for itself");
        assert_eq!(data(&ask(&name, RecordType::A)), ["10.0.0.5"]);
        assert_eq!(data(&ask(&name, RecordType::A)), ["10.0.0.5"], "the last answer stays");
    });
}

#[test]
fn every_query_is_written_down() {
    inside("every_query_is_written_down", || {
        let rig = Rig::connect();
        let name = rig.unique("data");
        rig.zone(&format!("*.{name}")).a([203, 0, 113, 1]).publish();
        assert!(rig.queries(&name).is_empty());
        let mark = rig.mark();
        assert_eq!(data(&ask(&format!("secret.of.{name}"), RecordType::A)), ["203.0.113.1"]);
        // Whichever address is asked, by whichever way.
        let other =
            asked(Ipv4Addr::new(8, 8, 8, 8), &format!("SeCrEt.{name}"), RecordType::TXT, SOON).unwrap();
        assert_eq!(other.metadata.response_code, ResponseCode::NoError);
        let six: Ipv6Addr = "2606:4700:4700::1111".parse().unwrap();
        asked(six, &name, RecordType::NULL, SOON).unwrap();
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(RESOLVER.into(), 53), SOON).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let packet = question(&name, RecordType::A);
        stream.write_all(&u16::try_from(packet.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&packet).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let queries = rig.queries(&name);
        let seen: Vec<_> =
            queries.iter().map(|q| (q.kind.as_str(), q.transport.as_str(), q.to.ip())).collect();
        let expected: [(_, _, IpAddr); 4] = [
            ("A", "udp", RESOLVER.into()),
            ("TXT", "udp", Ipv4Addr::new(8, 8, 8, 8).into()),
            ("NULL", "udp", six.into()),
            ("A", "tcp", RESOLVER.into()),
        ];
        assert_eq!(seen, expected);
        assert_eq!(queries[1].asked, format!("SeCrEt.{name}."));
        assert!(rig.queries(&name[1..]).is_empty(), "a name is not a suffix of letters");
        assert!(rig.queries_since(mark, None).len() >= 4);
        assert!(rig.queries_since(rig.mark(), Some(&name)).is_empty());
    });
}
