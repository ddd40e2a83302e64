use super::*;

fn class(text: &str) -> AddressClass {
    classify(text.parse().unwrap())
}

#[test]
fn every_special_block_is_known_at_both_ends() {
    for (first, last) in [
        ("0.0.0.0", "0.255.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("169.254.169.254", "169.254.170.2"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "239.255.255.255"),
        ("240.0.0.0", "255.255.255.255"),
        ("100.100.100.200", "168.63.129.16"),
        ("::", "::1"),
        ("::1.2.3.4", "::ffff:8.8.8.8"),
        ("::ffff:0:8.8.8.8", "::ffff:127.0.0.1"),
        ("64:ff9b::8.8.8.8", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
        ("100::", "100:0:0:1::"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:2::", "2001:20::1"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("5f00::", "5f00::1"),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("ff00::", "ff02::1"),
        ("fd00:ec2::254", "fd20:ce::254"),
        ("1fff:ffff::", "4000::"),
    ] {
        assert_eq!(class(first), AddressClass::Forbidden, "{first}");
        assert_eq!(class(last), AddressClass::Forbidden, "{last}");
    }
}

#[test]
fn private_blocks_are_known_at_both_ends() {
    for (first, last, block) in [
        ("10.0.0.0", "10.255.255.255", "10.0.0.0/8"),
        ("172.16.0.0", "172.31.255.255", "172.16.0.0/12"),
        ("192.168.0.0", "192.168.255.255", "192.168.0.0/16"),
        ("100.64.0.0", "100.127.255.255", "100.64.0.0/10"),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fc00::/7"),
    ] {
        let block = AddressClass::Private(Cidr::parse(block).unwrap());
        assert_eq!((class(first), class(last)), (block, block), "{first}");
    }
}

#[test]
fn next_to_the_special_blocks_is_public() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.31.196.1",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "203.0.114.0",
        "223.255.255.255",
        "2000::",
        "2001:200::",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::",
        "2606:4700:4700::1111",
        "3fff:1000::",
        "3ffe:ffff::",
    ] {
        assert_eq!(class(text), AddressClass::Public, "{text}");
    }
}

#[test]
fn this_machines_addresses_are_its_own() {
    for text in ["127.0.0.1", "127.9.9.9", "::1"] {
        assert!(is_own(text.parse().unwrap()).unwrap(), "{text}");
    }
    for interface in nix::ifaddrs::getifaddrs().unwrap() {
        if let Some(address) =
            interface.address.and_then(|a| a.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::ip))
        {
            assert!(is_own(address.into()).unwrap(), "{address}");
        }
    }
    assert!(!is_own("192.0.2.77".parse().unwrap()).unwrap());
}
