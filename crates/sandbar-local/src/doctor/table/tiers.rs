//! What stronger walls and a way to the network will need.

use crate::doctor::condition::{Condition, Fault, Mend, Need, Weight};

const NFTABLES_MODULES: &str = "modprobe -a nf_tables nft_chain_nat nft_nat nft_ct nft_limit";

pub(crate) static PACKET_FILTER: Condition = Condition {
    id: "packet-filter",
    title: "nftables can redirect what leaves a network namespace",
    need: Need::Optional,
    cost: "no egress policy but `deny-all`",
    faults: &[&PACKET_FILTER_MISSING],
};
pub(crate) static PACKET_FILTER_MISSING: Fault = Fault {
    id: "packet-filter/missing",
    says: "nftables can't redirect in a network namespace of this user's",
    weight: Weight::Missing,
    mends: &[
        Mend::Host(NFTABLES_MODULES),
        Mend::Container(
            "sudo modprobe -a nf_tables nft_chain_nat nft_nat nft_ct nft_limit  # on the container's host",
        ),
    ],
};

const INSTALL_RUNSC: Mend = Mend::Root(
    "sh -c 'curl -fsSLo /usr/local/bin/runsc https://storage.googleapis.com/gvisor/releases/release/latest/$(uname -m)/runsc \
     && chmod 755 /usr/local/bin/runsc'",
);

pub(crate) static RUNSC: Condition = Condition {
    id: "runsc",
    title: "gVisor's `runsc`, and it runs",
    need: Need::Optional,
    cost: "the isolation tier `gvisor` is not to be had",
    faults: &[&RUNSC_ABSENT, &RUNSC_UNTRUSTED, &RUNSC_FAILS],
};
pub(crate) static RUNSC_ABSENT: Fault = Fault {
    id: "runsc/absent",
    says: "`runsc` is not in PATH",
    weight: Weight::Missing,
    mends: &[INSTALL_RUNSC],
};
pub(crate) static RUNSC_UNTRUSTED: Fault = Fault {
    id: "runsc/untrusted",
    says: "`runsc` is in PATH, and others than root and this user may change it or its folder",
    weight: Weight::Missing,
    mends: &[
        Mend::User("ls -ldL \"$(command -v runsc)\" \"$(dirname \"$(command -v runsc)\")\""),
        INSTALL_RUNSC,
    ],
};
pub(crate) static RUNSC_FAILS: Fault = Fault {
    id: "runsc/fails",
    says: "`runsc` is in PATH, and does not run",
    weight: Weight::Missing,
    mends: &[Mend::User("runsc --version"), INSTALL_RUNSC],
};

pub(crate) static KVM: Condition = Condition {
    id: "kvm",
    title: "/dev/kvm runs instructions",
    need: Need::Optional,
    cost: "the isolation tier `microvm` is not to be had",
    faults: &[&KVM_ABSENT, &KVM_FORBIDDEN, &KVM_BROKEN],
};
pub(crate) static KVM_ABSENT: Fault = Fault {
    id: "kvm/absent",
    says: "there is no /dev/kvm",
    weight: Weight::Missing,
    mends: &[
        Mend::Host("sh -c 'modprobe kvm_intel || modprobe kvm_amd'"),
        Mend::Container("docker run --device /dev/kvm IMAGE"),
    ],
};
pub(crate) static KVM_FORBIDDEN: Fault = Fault {
    id: "kvm/forbidden",
    says: "this user may not open /dev/kvm",
    weight: Weight::Missing,
    mends: &[
        Mend::Host("usermod --append --groups kvm {user}"),
        Mend::Container("docker run --device /dev/kvm --group-add $(stat -c %g /dev/kvm) IMAGE"),
    ],
};
pub(crate) static KVM_BROKEN: Fault = Fault {
    id: "kvm/broken",
    says: "/dev/kvm is there, and no virtual machine runs with it",
    weight: Weight::Missing,
    mends: &[Mend::Root("dmesg"), Mend::Host("sh -c 'modprobe kvm_intel || modprobe kvm_amd'")],
};
