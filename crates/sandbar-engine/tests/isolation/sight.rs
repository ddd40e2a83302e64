use crate::harness::Options;
use crate::modes::in_every_mode;

#[test]
fn starts() {
    in_every_mode("sight::starts", |bench| {
        let report = bench.report("report", &Options::default());
        println!("{report:#}");
    });
}
