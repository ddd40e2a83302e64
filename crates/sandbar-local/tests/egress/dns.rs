//! The resolver, and what names lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::Instant;

use sandbar_core::Command;
use sandbar_rig::{HOST, Rig};

use crate::bed::{Bed, allow, in_rig, users};

#[test]
fn a_denied_name_causes_no_packet_outside() {
    in_rig("dns::a_denied_name_causes_no_packet_outside", async || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*allowed])).await;
        let page = sandbox.fetched(&format!("https://{allowed}/here")).await;
        assert!(page.contains("/here"), "{page}");
        for name in
            [&denied, &format!("sub.{denied}"), &format!("{allowed}.{denied}"), &format!("evil{allowed}")]
        {
            for scheme in ["http", "https"] {
                sandbox.refused(&format!("{scheme}://{name}/")).await;
                sandbox.refused(&format!("{scheme}://{}./", name.to_uppercase())).await;
            }
        }
        // By hand, to our resolver and to others, for every type that carries data.
        let script = format!(
            "import socket, struct\n\
             name = b''.join(bytes([len(p)]) + p for p in b'{denied}'.split(b'.')) + b'\\0'\n\
             for server in ['198.18.0.1', '1.1.1.1', '127.0.0.1']:\n\
             \x20 for kind in [1, 28, 16, 10, 255, 5, 15, 65]:\n\
             \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             \x20   s.settimeout(1)\n\
             \x20   try:\n\
             \x20     s.sendto(b'\\5\\5\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + struct.pack('>HH', kind, 1), (server, 53))\n\
             \x20     r = s.recv(2000)\n\
             \x20     assert r[7] == 0, 'an answer'\n\
             \x20   except OSError: pass\n"
        );
        for user in users() {
            let output =
                sandbox.run_as(user, &Command::new("python3").args(["-c", &script]), Vec::new()).await;
            assert!(output.status.is_success(), "{}", output.stderr_lossy());
        }
        assert!(rig.queries(&denied).is_empty(), "{:#?}", rig.queries(&denied));
        assert!(rig.arrivals(address.v4).is_empty() && rig.arrivals(address.v6).is_empty());
        assert!(!rig.queries(&allowed).is_empty(), "the resolver's records are those of this test");
        sandbox.destroy().await;
    });
}

#[test]
fn a_name_that_turns_private_is_refused() {
    in_rig("dns::a_name_that_turns_private_is_refused", async || {
        let rig = Rig::connect();
        let (name, own) = (rig.unique("rebinding"), rig.address());
        // No other test goes there.
        let private = Ipv4Addr::new(10, 214, 7, 9);
        rig.zone(&name).a(own.v4).ttl(0).then().a(private).ttl(0).publish();
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*format!("{name}:any")])).await;
        sandbox.fetched(&format!("https://{name}/first")).await;
        for _ in 0..3 {
            sandbox.refused(&format!("https://{name}/second")).await;
            sandbox.refused(&format!("http://{name}/second")).await;
        }
        assert!(rig.queries(&name).len() > 1, "it was looked up again");
        assert!(rig.arrivals(private).is_empty(), "{:#?}", rig.arrivals(private));
        assert_eq!(rig.requests(&name).len(), 1);
        sandbox.destroy().await;
    });
}

#[test]
fn no_name_leads_to_a_forbidden_address() {
    in_rig("dns::no_name_leads_to_a_forbidden_address", async || {
        let rig = Rig::connect();
        // On every address of this host: loopback, interface, bridge.
        let host = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        host.set_nonblocking(true).unwrap();
        let port = host.local_addr().unwrap().port();
        let v4 = [
            Ipv4Addr::LOCALHOST,
            HOST,
            sandbar_rig::HOST_BRIDGE,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::new(10, 214, 7, 10),
            Ipv4Addr::new(172, 21, 7, 10),
            Ipv4Addr::new(192, 168, 214, 10),
            Ipv4Addr::new(100, 77, 7, 10),
            Ipv4Addr::new(169, 254, 169, 253),
            Ipv4Addr::new(168, 63, 129, 16),
            Ipv4Addr::new(198, 18, 7, 10),
            Ipv4Addr::new(192, 0, 2, 10),
            Ipv4Addr::new(240, 7, 7, 10),
            Ipv4Addr::BROADCAST,
            Ipv4Addr::new(224, 7, 7, 10),
        ];
        let v6 = [
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::UNSPECIFIED,
            Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
            Ipv4Addr::new(10, 214, 7, 11).to_ipv6_mapped(),
            "::10.214.7.11".parse().unwrap(),
            "64:ff9b::a0d6:70b".parse().unwrap(),
            "64:ff9b:1::a0d6:70b".parse().unwrap(),
            "2002:ad6:70b::1".parse().unwrap(),
            "fd00:214::7".parse().unwrap(),
            "fe80::7".parse().unwrap(),
            "fec0::7".parse().unwrap(),
            "ff02::7".parse().unwrap(),
            "2001:db8::7".parse().unwrap(),
        ];
        let base = rig.unique("forbidden");
        let mut names = Vec::new();
        for address in v4.map(IpAddr::V4).into_iter().chain(v6.map(IpAddr::V6)) {
            let name = format!("a{}.{base}", names.len());
            match address {
                IpAddr::V4(address) => rig.zone(&name).a(address).publish(),
                IpAddr::V6(address) => rig.zone(&name).aaaa(address).publish(),
            }
            names.push((name, address));
        }
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*format!("*.{base}:any")])).await;
        let mark = rig.mark();
        let urls: Vec<String> = names
            .iter()
            .flat_map(|(name, _)| [format!("https://{name}/"), format!("http://{name}:{port}/")])
            .collect();
        let script =
            urls.iter().map(|url| format!("curl -sSkf --max-time 5 '{url}' >/dev/null 2>&1 && echo '{url}'"));
        let output = sandbox.sh(&script.chain(["true".to_owned()]).collect::<Vec<_>>().join("\n")).await;
        assert_eq!(output.stdout_lossy(), "", "reached");
        for (name, address) in &names {
            assert!(!rig.queries(name).is_empty(), "`{name}` was looked up");
            let arrived = rig.arrivals_since(mark, Some(*address));
            // Others of this rig go to the well-known ones.
            let arrived = arrived.iter().filter(|_| *address != IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)));
            assert_eq!(arrived.count(), 0, "{address}");
        }
        assert!(host.accept().is_err(), "a connection reached the host");
        sandbox.destroy().await;
    });
}

#[test]
fn an_alias_leads_nowhere_that_its_address_may_not() {
    in_rig("dns::an_alias_leads_nowhere_that_its_address_may_not", async || {
        let rig = Rig::connect();
        let private = Ipv4Addr::new(10, 214, 7, 12);
        let (hidden, alias, public) = (rig.unique("hidden"), rig.unique("alias"), rig.unique("public"));
        let (denied, address) = rig.host("denied");
        rig.zone(&hidden).a(private).publish();
        rig.zone(&alias).cname(&hidden).publish();
        rig.zone(&public).cname(&denied).publish();
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*alias, &*public])).await;
        sandbox.refused(&format!("https://{alias}/")).await;
        assert!(rig.arrivals(private).is_empty());
        // An alias to a public address is its owner's word; what is asked for there is the allowed name and no other.
        sandbox.fetched(&format!("https://{public}/")).await;
        sandbox.refused(&format!("https://{denied}/")).await;
        let output = sandbox
            .sh(&format!(
                "curl -sSkf --max-time 5 --connect-to '{denied}:443:{public}:443' 'https://{denied}/'"
            ))
            .await;
        assert!(!output.status.is_success(), "{}", output.stdout_lossy());
        let names: Vec<_> = rig.connections(address.v4).into_iter().map(|seen| seen.server_name).collect();
        assert_eq!(names, [Some(public.clone())]);
        sandbox.destroy().await;
    });
}

#[test]
fn rewritten_files_lead_nowhere() {
    in_rig("dns::rewritten_files_lead_nowhere", async || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*allowed])).await;
        sandbox.fetched(&format!("https://{allowed}/")).await;
        // The address that stands for the allowed name, for the denied one.
        let output = sandbox
            .sh(&format!("python3 -c 'import socket; print(socket.gethostbyname(\"{allowed}\"))'"))
            .await;
        let synthetic = output.stdout_lossy().trim().to_owned();
        assert!(synthetic.starts_with("198.1"), "{synthetic}: {}", output.stderr_lossy());
        for to in [address.v4.to_string(), synthetic, "198.18.0.1".to_owned()] {
            let script = format!(
                "printf '{to} {denied}\\n' >/etc/hosts; printf 'nameserver 1.1.1.1\\n' >/etc/resolv.conf\n\
                 for url in https://{denied}/ http://{denied}/; do\n\
                 curl -sSkf --max-time 5 $url && echo LEAK\n\
                 curl -sSkf --max-time 5 --resolve '{denied}:443:{to}' --resolve '{denied}:80:{to}' $url && echo LEAK\n\
                 done; true"
            );
            for user in users() {
                let output = sandbox.run_as(user, &Command::shell(&*script), Vec::new()).await;
                assert!(
                    !output.stdout_lossy().contains("LEAK"),
                    "{to} as {user:?}: {}",
                    output.stdout_lossy()
                );
            }
        }
        assert!(rig.queries(&denied).is_empty() && rig.requests(&denied).is_empty());
        assert!(rig.arrivals(address.v4).is_empty(), "{:#?}", rig.arrivals(address.v4));
        sandbox.destroy().await;
    });
}

#[test]
fn data_in_labels_is_bounded() {
    in_rig("dns::data_in_labels_is_bounded", async || {
        let rig = Rig::connect();
        let base = rig.unique("wild");
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*format!("*.{base}")])).await;
        let begun = Instant::now();
        // Names of 180 bytes of data each, as fast as they are answered.
        let script = format!(
            "import socket\n\
             got = 0\n\
             for i in range(2000):\n\
             \x20 try:\n\
             \x20   socket.getaddrinfo('%05d' % i + 'x' * 50 + '.' + 'y' * 60 + '.' + 'z' * 60 + '.{base}', 80, socket.AF_INET)\n\
             \x20   got += 1\n\
             \x20 except OSError: pass\n\
             print(got)\n"
        );
        let output = sandbox.run_as(None, &Command::new("python3").args(["-c", &script]), Vec::new()).await;
        let resolved: u64 =
            output.stdout_lossy().trim().parse().unwrap_or_else(|_| panic!("{}", output.stderr_lossy()));
        // The scorecard's numbers. The burst is given out first, and then what comes back meanwhile, up to what all labels may have.
        let limits = sandbar_egress::Limits::default();
        let label = u64::try_from("00000".len() + 50 + ".".len() + 60 + ".".len() + 60).unwrap();
        let by_bytes = limits.wildcard_label_bytes / label;
        let burst = u64::from(limits.new_name_burst).min(by_bytes);
        // One more for the moment in which the count begins.
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap();
        let grown = millis * u64::from(limits.new_names_per_minute) / 60_000 + 1;
        let most = (burst + grown).min(by_bytes);
        assert!((burst..=most).contains(&resolved), "{resolved} names, of {burst} to {most}");
        assert!(rig.queries(&base).is_empty(), "what is not connected to is not looked up outside");
        sandbox.destroy().await;
    });
}
