use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use sandbar_core::Hostname;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use super::*;

fn host(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

fn record(owner: &str, ttl: u32, data: RData) -> Record {
    Record::from_rdata(Name::from_ascii(owner).unwrap(), ttl, data)
}

fn v4(text: &str) -> RData {
    RData::A(A(text.parse().unwrap()))
}

/// A server on loopback, for datagrams and connections at one port, that answers as `zone` says. It stops with the set.
async fn server(zone: fn(&Query, &mut Message)) -> (SocketAddr, JoinSet<()>) {
    let answer = move |bytes: &[u8]| {
        let question = Message::from_vec(bytes).unwrap();
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.add_query(question.queries[0].clone());
        zone(&question.queries[0], &mut answer);
        answer
    };
    let (socket, listener) = loop {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()).await {
            break (socket, listener);
        }
    };
    let address = socket.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = [0; 1500];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let mut answer = answer(&buffer[..length]);
            // Two that are none: another's, and one to another question.
            let mut other = answer.clone();
            other.metadata.id ^= 1;
            socket.send_to(&other.to_vec().unwrap(), from).await.unwrap();
            if answer.answers.len() > 8 {
                answer.answers.clear();
                answer.metadata.truncation = true;
            }
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut question).await.unwrap();
            let answer = answer(&question).to_vec().unwrap();
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    (address, tasks)
}

fn zone(query: &Query, answer: &mut Message) {
    let is_v4 = query.query_type() == RecordType::A;
    match query.name().to_string().as_str() {
        "a.test." if is_v4 => drop(answer.add_answer(record("a.test.", 20, v4("93.184.215.14")))),
        "a.test." => {
            let address = "2606:4700:4700::1111".parse().unwrap();
            answer.add_answer(record("a.test.", 10, RData::AAAA(AAAA(address))));
        }
        "alias.test." if is_v4 => {
            let alias = |to: &str| RData::CNAME(CNAME(Name::from_ascii(to).unwrap()));
            answer.add_answer(record("end.test.", 60, v4("93.184.215.15")));
            answer.add_answer(record("b.test.", 5, alias("END.test.")));
            answer.add_answer(record("alias.test.", 60, alias("b.test.")));
            answer.add_answer(record("unasked.test.", 60, v4("10.0.0.1")));
        }
        "many.test." if is_v4 => {
            for last in 0..40 {
                answer.add_answer(record("many.test.", 60, v4(&format!("93.184.215.{last}"))));
            }
        }
        "broken.test." => answer.metadata.response_code = ResponseCode::ServFail,
        "other.test." => {
            answer.queries.clear();
            answer.add_query(Query::query(Name::from_ascii("a.test.").unwrap(), RecordType::A));
            answer.add_answer(record("a.test.", 20, v4("93.184.215.14")));
        }
        "empty.test." | "many.test." | "alias.test." => {}
        _ => answer.metadata.response_code = ResponseCode::NXDomain,
    }
}

fn texts(answer: &Answer) -> Vec<String> {
    answer.addresses.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn it_finds_the_addresses_of_a_name_and_of_nothing_else() {
    let (address, _server) = server(zone).await;
    let upstream = Upstream::of_servers(vec![address]);
    let answer = upstream.resolve(&host("a.test")).await.unwrap();
    assert_eq!(texts(&answer), ["93.184.215.14", "2606:4700:4700::1111"]);
    assert_eq!(answer.ttl, Duration::from_secs(10));
    let answer = upstream.resolve(&host("alias.test")).await.unwrap();
    assert_eq!((texts(&answer), answer.ttl), (vec!["93.184.215.15".to_owned()], Duration::from_secs(5)));
    let answer = upstream.resolve(&host("many.test")).await.unwrap();
    assert_eq!(answer.addresses.len(), 32, "more than a datagram holds, and bounded");
    for (text, expected) in [
        ("no.test", "the name does not exist"),
        ("empty.test", "the name has no address"),
        ("broken.test", "answered: Server Failure"),
    ] {
        let why = upstream.resolve(&host(text)).await.unwrap_err();
        assert!(why.contains(expected), "{text}: {why}");
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_none() {
    let (address, _server) = server(zone).await;
    let upstream = Upstream::of_servers(vec![address]);
    let other = host("other.test");
    let resolving = tokio::time::timeout(Duration::from_millis(300), upstream.resolve(&other));
    assert!(resolving.await.is_err());
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_does_not_know() {
    let (broken, _first) = server(|_, answer| answer.metadata.response_code = ResponseCode::Refused).await;
    let (good, _second) = server(zone).await;
    let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let upstream = Upstream::of_servers(vec![nobody, broken, good]);
    assert_eq!(upstream.resolve(&host("alias.test")).await.unwrap().addresses.len(), 1);
    assert!(Upstream::of_servers(Vec::new()).resolve(&host("a.test")).await.is_err());
}

struct Counted(Arc<AtomicUsize>, Duration);

#[async_trait]
impl Resolve for Counted {
    async fn resolve(&self, _: &Hostname) -> Result<Answer, String> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        let address = IpAddr::from([93, 184, 215, u8::try_from(count).unwrap()]);
        Ok(Answer { addresses: vec![address], ttl: self.1 })
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_as_long_as_it_holds_and_not_for_long() {
    for (ttl, first, later) in [(0, 2, 3), (5, 1, 2), (86_400, 1, 2)] {
        let count = Arc::new(AtomicUsize::new(0));
        let cached = Cached::new(Counted(count.clone(), Duration::from_secs(ttl)));
        for _ in 0..2 {
            cached.resolve(&host("a.test")).await.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), first, "TTL {ttl}");
        tokio::time::advance(Duration::from_secs(31)).await;
        cached.resolve(&host("a.test")).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), later, "TTL {ttl}");
    }
}
