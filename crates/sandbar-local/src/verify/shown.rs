use sandbar_core::LegClass;
use sandbar_egress::Limits;

use super::row::Group;

/// A row of the scorecard that a test shows, or that nothing can show.
#[derive(Debug)]
pub(super) struct Shown {
    /// Which kind of way it is.
    pub(super) group: Group,
    /// What is tried.
    pub(super) title: &'static str,
    /// What can be promised.
    pub(super) class: LegClass,
    /// How much, where that is bounded: as the gateway has it.
    pub(super) number: Option<fn(&Limits) -> String>,
    /// The test in `tests/egress`.
    pub(super) test: Option<&'static str>,
    /// What is to be said about it.
    pub(super) why: Option<&'static str>,
}

/// What the probe can't show by itself: it takes a change outside, a second sandbox, or time.
pub(super) const SHOWN: &[Shown] = &[
    blocked(
        Group::Dns,
        "a denied name through the sandbox's resolver causes no packet outside",
        "dns::a_denied_name_causes_no_packet_outside",
    ),
    blocked(
        Group::Dns,
        "rebinding from a public to a private address",
        "dns::a_name_that_turns_private_is_refused",
    ),
    blocked(Group::Dns, "TTL 0 flip", "dns::a_name_that_turns_private_is_refused"),
    blocked(
        Group::Dns,
        "CNAME from an allowed to a denied private name",
        "dns::an_alias_leads_nowhere_that_its_address_may_not",
    ),
    Shown {
        group: Group::Dns,
        title: "CNAME from an allowed to a denied public name",
        class: LegClass::Residual,
        number: None,
        test: Some("dns::an_alias_leads_nowhere_that_its_address_may_not"),
        why: Some("who owns an allowed name says where it leads, and is asked for by that name only"),
    },
    blocked(Group::Dns, "rewritten `/etc/hosts` and `resolv.conf`", "dns::rewritten_files_lead_nowhere"),
    Shown {
        group: Group::Dns,
        title: "data in labels under an allowed wildcard",
        class: LegClass::Bounded,
        number: Some(|limits| {
            format!(
                "{} KiB of labels in a gateway's life, {} new names at once and {} a minute",
                limits.wildcard_label_bytes >> 10,
                limits.new_name_burst,
                limits.new_names_per_minute
            )
        }),
        test: Some("dns::data_in_labels_is_bounded"),
        why: Some("and only those that are connected to are looked up outside"),
    },
    with_interception(Group::Dns, "DNS over HTTPS at an allowed name"),
    with_interception(Group::Http, "HTTP/2 authority is another name"),
    with_interception(Group::Http, "Host inside TLS is another name"),
    blocked(
        Group::Http,
        "redirect from an allowed to a denied name",
        "http::a_redirect_to_a_denied_name_is_refused",
    ),
    Shown {
        group: Group::Http,
        title: "an allowed service as a relay",
        class: LegClass::Residual,
        number: None,
        test: None,
        why: Some("what an allowed host does with what it is told is up to that host"),
    },
    Shown {
        group: Group::Http,
        title: "bytes out to an allowed name",
        class: LegClass::Bounded,
        number: Some(|limits| match limits.bytes_out {
            Some(bytes) => format!("{} GiB in a gateway's life", bytes >> 30),
            None => "none".to_owned(),
        }),
        test: None,
        why: Some("counted for each sandbox, and cut there"),
    },
    blocked(Group::Transport, "io_uring connect", "kernel::the_kernel_refuses_what_leads_out"),
    blocked(Group::Transport, "`unshare` to a new namespace", "kernel::the_kernel_refuses_what_leads_out"),
    blocked(Group::Transport, "`bpf()`", "kernel::the_kernel_refuses_what_leads_out"),
    blocked(
        Group::Transport,
        "nothing of the whole suite arrives outside",
        "leaks::nothing_of_the_suite_arrives_outside",
    ),
    blocked(
        Group::State,
        "a policy change cuts flows",
        "state::a_policy_change_cuts_what_it_no_longer_allows",
    ),
    blocked(Group::State, "gateway killed: no traffic", "state::a_dead_gateway_is_no_network"),
    blocked(Group::State, "the first 100 ms after boot", "state::nothing_gets_out_in_the_first_moments"),
    blocked(Group::State, "right after resume", "state::nothing_gets_out_right_after_it_wakes"),
    blocked(Group::State, "right after fork", "state::nothing_gets_out_right_after_fork"),
    blocked(Group::State, "another sandbox's policy", "state::no_sandbox_reaches_by_the_rule_of_another"),
    blocked(Group::State, "10,000 rules", "state::ten_thousand_rules_load_and_none_other_counts"),
    blocked(
        Group::State,
        "descriptor and connection exhaustion",
        "state::exhaustion_of_one_leaves_the_others_working",
    ),
    blocked(
        Group::Gateway,
        "something inside that takes the gateway's port while it restarts",
        "state::a_dead_gateway_is_no_network",
    ),
];

const fn blocked(group: Group, title: &'static str, test: &'static str) -> Shown {
    Shown { group, title, class: LegClass::Blocked, number: None, test: Some(test), why: None }
}

const fn with_interception(group: Group, title: &'static str) -> Shown {
    Shown {
        group,
        title,
        class: LegClass::WithInterception,
        number: None,
        test: None,
        why: Some("inside TLS the gateway sees nothing else than that it is for the allowed name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_is_named_is_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/egress");
        for test in SHOWN.iter().filter_map(|shown| shown.test) {
            let (module, name) = test.split_once("::").expect("a module");
            let text = std::fs::read_to_string(folder.join(format!("{module}.rs"))).expect(module);
            assert!(text.contains(&format!("#[test]\nfn {name}()")), "{test}");
            assert!(text.contains(&format!("\"{test}\"")), "{test} runs under its name");
        }
    }

    #[test]
    fn what_is_bounded_has_a_number_and_what_is_blocked_a_test() {
        for shown in SHOWN {
            assert_eq!(shown.class == LegClass::Bounded, shown.number.is_some(), "{}", shown.title);
            assert!(shown.test.is_some() || shown.why.is_some(), "{}", shown.title);
            let number = shown.number.map(|number| number(&Limits::default()));
            assert!(number.is_none_or(|number| number.starts_with(|c: char| c.is_ascii_digit() && c != '0')));
        }
    }
}
