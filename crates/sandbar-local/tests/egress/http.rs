//! What an allowed host's answer leads to.

use sandbar_rig::Rig;

use crate::bed::{Bed, allow, in_rig};

#[test]
fn a_redirect_to_a_denied_name_is_refused() {
    in_rig("http::a_redirect_to_a_denied_name_is_refused", async || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*allowed])).await;
        for (scheme, target) in [("http", &*denied), ("https", &*denied), ("https", &*address.v4.to_string())]
        {
            let to = format!("{scheme}://{target}/there");
            let output = sandbox
                .sh(&format!("curl -sSkfL --max-time 20 '{scheme}://{allowed}/redirect?to={to}'"))
                .await;
            assert!(!output.status.is_success(), "{to}: {}", output.stdout_lossy());
        }
        // The first half of each came through, and the second nowhere.
        assert_eq!(rig.requests(&allowed).len(), 3, "{:#?}", rig.requests(&allowed));
        assert!(rig.requests(&denied).is_empty() && rig.queries(&denied).is_empty());
        assert!(rig.arrivals(address.v4).is_empty(), "{:#?}", rig.arrivals(address.v4));
        sandbox.destroy().await;
    });
}
