use proptest::prelude::*;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn parent(text: &str) -> Option<TraceContext> {
    TraceContext::parse(text, None)
}

#[test]
fn a_valid_parent_is_taken_and_passed_on_with_a_span_of_its_own() {
    let context = parent(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
    assert_eq!(context.trace_id().to_string(), TRACE);
    assert_eq!(context.parent().unwrap().to_string(), SPAN);
    let span = context.span();
    assert_eq!(span.parent(), context.parent());
    assert_ne!(Some(span.id()), context.parent());
    assert_eq!(span.traceparent(), format!("00-{TRACE}-{}-01", span.id()));
    assert_eq!(span.context().span().parent(), Some(span.id()));
}

#[test]
fn what_the_specification_forbids_is_not_taken() {
    for text in [
        "",
        "00",
        &format!("00-{TRACE}-{SPAN}"),
        &format!("00-{TRACE}-{SPAN}-1"),
        &format!("00-{TRACE}-{SPAN}-01-"),
        &format!("00-{TRACE}-{SPAN}-01-more"),
        &format!("ff-{TRACE}-{SPAN}-01"),
        &format!("0x-{TRACE}-{SPAN}-01"),
        &format!("cc-{TRACE}-{SPAN}-01.what"),
        &format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
        &format!("00-{}-{SPAN}-01", "0".repeat(32)),
        &format!("00-{TRACE}-{}-01", "0".repeat(16)),
        &format!("00-{TRACE}-{SPAN}-0G"),
        &format!("00_{TRACE}_{SPAN}_01"),
        &format!("00-{TRACE}-{SPAN}-01\u{e9}"),
    ] {
        assert_eq!(parent(text), None, "{text}");
    }
}

#[test]
fn a_later_version_is_read_as_far_as_it_is_known_and_unknown_flags_end_here() {
    let later = parent(&format!("cc-{TRACE}-{SPAN}-fd-what-ever")).unwrap();
    assert!(later.span().traceparent().starts_with(&format!("00-{TRACE}-")));
    assert!(later.span().traceparent().ends_with("-01"), "{}", later.span());
    assert!(!parent(&format!("00-{TRACE}-{SPAN}-00")).unwrap().span().is_sampled());
}

#[test]
fn no_parent_or_a_bad_one_begins_a_trace() {
    let fresh = TraceContext::from_caller(Some("nonsense"), Some("a=b"));
    assert_eq!((fresh.parent(), fresh.span().state().as_str()), (None, ""));
    assert!(fresh.span().is_sampled());
    assert_ne!(TraceContext::from_caller(None, None).trace_id(), fresh.trace_id());
}

#[test]
fn a_state_is_passed_whole_or_not_at_all() {
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let state =
        |text: &str| TraceContext::parse(&parent, Some(text)).unwrap().span().state().as_str().to_owned();
    assert_eq!(
        state("rojo=00f067aa0ba902b7 , congo=t61rcWkgMzE,,"),
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    );
    for bad in ["a", "A=b", "a=b,a=c", "a=b=c", "a=\u{e9}", "=b", "a=", "a@b@c=1", "a=b\nc"] {
        assert_eq!(state(bad), "", "{bad:?}");
    }
    let many: Vec<_> = (0..33).map(|n| format!("k{n}=v")).collect();
    assert_eq!(state(&many.join(",")), "");
    assert_eq!(state(&many[..32].join(",")), many[..32].join(","));
}

#[test]
fn a_long_state_loses_long_entries_first_and_then_the_oldest() {
    let long = format!("long={}", "x".repeat(200));
    let short: Vec<_> = (0..25).map(|n| format!("k{n}={}", "y".repeat(20))).collect();
    let text = format!("{long},{}", short.join(","));
    let kept = TraceState::parse(&text).unwrap();
    assert!(kept.as_str().len() <= 512 && !kept.as_str().contains("long"));
    assert!(kept.as_str().starts_with("k0=") && !kept.as_str().contains("k24="), "{kept}");
}

#[tokio::test]
async fn a_context_holds_for_its_task() {
    assert_eq!(TraceContext::current(), None);
    let context = TraceContext::begin();
    let seen = context.clone().scope(async { TraceContext::current() }).await;
    assert_eq!((seen, TraceContext::current()), (Some(context), None));
}

proptest! {
    #[test]
    fn any_text_is_a_context_or_none(parent in ".{0,80}", state in ".{0,200}") {
        let context = TraceContext::from_caller(Some(&parent), Some(&state));
        prop_assert!(TraceContext::parse(&context.span().traceparent(), None).is_some());
    }

    #[test]
    fn what_is_nearly_valid_is_valid_by_the_specification(
        version in "[0-9a-f]{2}", trace in "[0-9a-f]{32}", span in "[0-9a-f]{16}", flags in "[0-9a-f]{2}", tail in "(-[ -~]{0,8})?",
    ) {
        let wanted = version != "ff" && trace != "0".repeat(32) && span != "0".repeat(16)
            && (version != "00" || tail.is_empty());
        let text = format!("{version}-{trace}-{span}-{flags}{tail}");
        // Blanks round a header's value are not part of it.
        let context = parent(text.trim_end());
        if !tail.ends_with(' ') {
            prop_assert_eq!(context.is_some(), wanted);
        }
        if let Some(context) = context {
            prop_assert_eq!(context.trace_id().to_string(), trace);
            prop_assert_eq!(context.parent().unwrap().to_string(), span);
        }
    }

    #[test]
    fn a_state_that_was_taken_is_within_bounds_and_comes_back(text in "([a-z0-9@*/_-]{1,12}=[!-~]{0,40}[ ,]{0,2}){0,40}") {
        if let Some(state) = TraceState::parse(&text) {
            prop_assert!(state.as_str().len() <= 512);
            prop_assert_eq!(TraceState::parse(state.as_str()), Some(state));
        }
    }
}
