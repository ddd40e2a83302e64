//! Tries all that `doctor` tries, and prints what came of it.

use std::os::fd::AsFd as _;

use sandbar_engine::host;

fn main() {
    let host = sandbar_engine::Host::observe();
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/tmp".into());
    let folder = std::fs::File::open(folder).expect("a folder");
    let show = |name: &str, result: Result<(), sandbar_engine::Error>| match result {
        Ok(()) => println!("{name}: ok"),
        Err(error) => println!("{name}: {error} [{:?}]", error.obstacle()),
    };
    show("namespaces", host::probe_namespaces(&host, None));
    if let ids @ sandbar_engine::IdMode::Subordinate(_) = host.user_id_mode() {
        show("subordinate", host::probe_namespaces(&host, Some(&ids)));
    }
    show("procfs", host::probe_procfs(&host));
    show("filter", host::probe_system_call_filter(&host));
    show("landlock", host::probe_landlock(&host));
    show("overlay", host::probe_overlay(&host, folder.as_fd()));
    show("packet filter", host::probe_packet_filter(&host));
    show("id-mapped mounts", host::probe_idmapped_mounts(folder.as_fd()));
    println!("kvm: {:?}", host::probe_kvm(std::path::Path::new("/dev/kvm")));
}
