use super::*;

fn to(text: &str) -> Destination {
    Destination::Name(text.parse().unwrap())
}

#[test]
fn there_are_only_so_many_of_a_protocol() {
    let flows = Flows::new();
    let first = flows.begin(Protocol::Tcp, 2).unwrap();
    let _second = flows.begin(Protocol::Tcp, 2).unwrap();
    assert!(flows.begin(Protocol::Tcp, 2).is_none());
    let _other = flows.begin(Protocol::Udp, 2).unwrap();
    drop(first);
    assert!(flows.begin(Protocol::Tcp, 2).is_some());
}

#[tokio::test]
async fn those_that_may_not_stay_are_over_when_the_cut_is() {
    let flows = Flows::new();
    let mut tasks = tokio::task::JoinSet::new();
    for name in ["stays.test", "goes.test", "goes.test"] {
        let flow = flows.begin(Protocol::Tcp, 9).unwrap();
        flow.track().set_destination(&to(name), 443);
        tasks.spawn(async move { flow.track().when_cut().await });
    }
    let unknown = flows.begin(Protocol::Tcp, 9).unwrap();
    let left = flows
        .cut_unless(|about, _| about.to.as_ref().is_some_and(|(to, _)| to.to_string() == "stays.test"))
        .await;
    assert_eq!(left, [0; 0]);
    assert_eq!(flows.count(), 2);
    assert_eq!(unknown.track().is_cut(), None);
    for _ in 0..2 {
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), DecisionReason::PolicyChanged);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_idle_only_when_nothing_passed_for_so_long() {
    let flows = Flows::new();
    let flow = flows.begin(Protocol::Tcp, 9).unwrap();
    flow.track().count_out(5);
    flow.track().count_in(7);
    assert_eq!(flow.track().bytes(), (5, 7));
    flow.track().when_idle(Duration::from_millis(30)).await;
    for address in 0..20u8 {
        flow.track().add_address(IpAddr::from([8, 8, 8, address]));
    }
    assert_eq!(flow.track().last_address(), Some(IpAddr::from([8, 8, 8, 19])));
    assert_eq!(flow.track().about().addresses.len(), ADDRESSES);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_end_is_told() {
    let flows = Flows::new();
    let flow = flows.begin(Protocol::Tcp, 9).unwrap();
    flow.track().set_destination(&to("goes.test"), 443);
    let left = flows.cut_unless(|_, _| false).await;
    assert_eq!(left, [flow.number]);
    drop(flow);
    assert_eq!(flows.await_end(left).await, [0; 0]);
}
