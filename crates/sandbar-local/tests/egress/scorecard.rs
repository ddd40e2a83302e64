//! The published scorecard.

use sandbar_core::{LegOutcome, VerdictState};
use sandbar_rig::Rig;

use crate::bed::{Bed, in_rig};
use crate::full;

#[test]
fn the_scorecard_is_what_a_run_gives() {
    in_rig("scorecard::the_scorecard_is_what_a_run_gives", async || {
        let rig = Rig::connect();
        let allowed = full::outside(&rig);
        let bed = Bed::new();
        let verdict = full::look(&bed.provider, &allowed).await;
        bed.assert_empty();
        assert_eq!(verdict.state, VerdictState::Filtered, "{verdict:#?}");
        let untested =
            verdict.legs.iter().filter(|leg| leg.outcome == LegOutcome::Untested).collect::<Vec<_>>();
        assert!(untested.is_empty(), "the rig has a target for every row: {untested:#?}");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/egress-scorecard.md");
        let text = std::fs::read_to_string(path).expect("docs/egress-scorecard.md");
        assert!(
            text == sandbar_local::scorecard_document(&verdict),
            "docs/egress-scorecard.md is not what a run gives: run `cargo xtask gen`"
        );
    });
}
