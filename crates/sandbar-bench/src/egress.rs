use std::process::{Command as HostCommand, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar::{
    Command, CreateOptions, EgressPolicy, EgressRule, Lifetime, Otherwise, PortSet, Sandbox, Target,
};
use sandbar_rig::Rig;
use tokio::net::{TcpListener, TcpStream};

use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

/// Connections that are timed in one go of a client: all of them together stay below what a sandbox may begin at once (500, then 200 a second).
const CONNECTIONS: usize = 40;
/// Connections of a go that do not count: caches of the kernel, of the resolver, of the interpreter.
const WARM_UP: usize = 5;
/// Gos of each client, in turns.
const ROUNDS: usize = 12;
/// Downloads of each, in turns.
const DOWNLOADS: usize = 9;
/// Bytes of a download.
const BYTES: u64 = 512 << 20;
/// Creations of each kind, in turns.
const CREATIONS: usize = 150;
/// Between two creations.
const REST: Duration = Duration::from_millis(10);
/// A port of the outside where no request is read.
const PORT: u16 = 9000;
/// Rules of the small and of the large policy.
const FEW: usize = 10;
const MANY: usize = 10_000;

/// Connects, exchanges a byte, and prints how many microseconds that took, one line each. The first ones do not count.
const CONNECT: &str = "
import socket, sys, time
host, port, count, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
address = socket.gethostbyname(host)
for turn in range(count + warm_up):
    begun = time.perf_counter_ns()
    connection = socket.create_connection((address, port))
    connection.sendall(b'!')
    assert connection.recv(1) == b'!'
    took = time.perf_counter_ns() - begun
    connection.close()
    if turn >= warm_up:
        print(took / 1e6)
";

/// Reads a response to its end and prints millions of bytes a second.
const DOWNLOAD: &str = "
import socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
name = sys.argv[4]
connection = socket.create_connection((socket.gethostbyname(host), port))
connection.sendall(f'GET /bytes/{count} HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
room, got, begun = bytearray(1 << 20), 0, time.perf_counter()
while True:
    size = connection.recv_into(room)
    if size == 0:
        break
    got += size
assert got > count, got
print(got / (time.perf_counter() - begun) / 1e6)
";

/// A connection through the gateway, and what the number of rules makes of it.
pub(crate) fn connect(bed: &Bed) -> Result<Vec<Row>, String> {
    let rig = Rig::connect();
    let (name, address) = rig.host("bench");
    let few = bed.runtime.block_on(create(bed, policy(&name, FEW)?))?;
    let many = bed.runtime.block_on(create(bed, policy(&name, MANY)?))?;
    let (mut small, mut large, mut direct) = (Samples::default(), Samples::default(), Samples::default());
    let mut again = Samples::default();
    let (port, count, warm_up) = (PORT.to_string(), CONNECTIONS.to_string(), WARM_UP.to_string());
    let arguments = [name.as_str(), &port, &count, &warm_up];
    for _ in 0..bed.rounds(ROUNDS) {
        let host = address.v4.to_string();
        note(&mut direct, on_host(CONNECT, &[&host, &port, &count, &warm_up]));
        let through = bed.runtime.block_on(inside(few.as_ref(), CONNECT, &arguments));
        note(&mut small, through.clone());
        note(&mut again, through);
        note(&mut large, bed.runtime.block_on(inside(many.as_ref(), CONNECT, &arguments)));
    }
    for sandbox in [few, many] {
        bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    }
    Ok(vec![
        Row::new(
            "egress-connect",
            "connect by name through the gateway, and a byte there and back",
            "ms",
            small,
            Peer::measured("the same client to the same server from the host", direct),
            Bar::AtMostMore(0.3),
        ),
        Row::new(
            "egress-connect",
            "the same with 10,000 rules",
            "ms",
            large,
            Peer::measured("with 10 rules", again),
            Bar::AtMostTimes(1.1),
        ),
    ])
}

/// A download through the gateway, against the plainest relay there is.
pub(crate) fn download(bed: &Bed) -> Result<Vec<Row>, String> {
    let rig = Rig::connect();
    let (name, address) = rig.host("bench");
    let sandbox = bed.runtime.block_on(create(bed, policy(&name, FEW)?))?;
    let relay = relay((address.v4, PORT).into())?;
    let (mut ours, mut theirs) = (Samples::rates(), Samples::rates());
    let (port, relayed, bytes) = (PORT.to_string(), relay.to_string(), BYTES.to_string());
    for _ in 0..bed.rounds(DOWNLOADS) {
        note(&mut theirs, on_host(DOWNLOAD, &["127.0.0.1", &relayed, &bytes, &name]));
        let arguments = [name.as_str(), &port, &bytes, &name];
        note(&mut ours, bed.runtime.block_on(inside(sandbox.as_ref(), DOWNLOAD, &arguments)));
    }
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let peer = Peer::measured("the same client and server through tokio's `copy_bidirectional`", theirs);
    let what = "download through the gateway";
    Ok(vec![Row::new("egress-download", what, "MB/s", ours, peer, Bar::AtLeastTimes(0.95))])
}

/// What a policy costs at creation.
pub(crate) fn create_with_policy(bed: &Bed) -> Result<Vec<Row>, String> {
    let (mut with, mut without) = (Samples::default(), Samples::default());
    let options = |policy: Option<EgressPolicy>| {
        let options = CreateOptions::new().with_lifetime(Lifetime::Owned);
        policy.map_or(options.clone(), |policy| options.with_egress(policy))
    };
    let policy = policy("host.example.test", FEW)?;
    for turn in 0..bed.rounds(CREATIONS) + WARM_UP {
        for (samples, policy) in [(&mut without, None), (&mut with, Some(policy.clone()))] {
            let begun = Instant::now();
            let made = bed.runtime.block_on(bed.provider.create(options(policy)));
            let took = begun.elapsed();
            let made = made.map_err(|error| error.to_string());
            if let Ok(sandbox) = &made {
                bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
            }
            if turn >= WARM_UP {
                samples.took(took, made);
            }
            // The next one is prepared aside, whoever's it is.
            std::thread::sleep(REST);
        }
    }
    let peer = Peer::measured("create without a policy", without);
    let what = "create with a policy of 10 rules";
    Ok(vec![Row::new("egress-create", what, "ms", with, peer, Bar::AtMostMore(1.0))])
}

/// A policy that allows `name` at the port, by the last of so many rules.
fn policy(name: &str, rules: usize) -> Result<EgressPolicy, String> {
    let rule = |name: &str| -> sandbar::Result<EgressRule> {
        Ok(EgressRule::new(Target::Name(name.parse()?)).with_ports(PortSet::one(PORT)?))
    };
    let others = (1..rules).map(|number| format!("host-{number}.bench.test"));
    let allow = others.map(|other| rule(&other)).chain([rule(name)]).collect::<Result<_, _>>();
    let allow = allow.map_err(|error| error.to_string())?;
    Ok(EgressPolicy::rules(allow, Vec::new(), Otherwise::Deny))
}

async fn create(bed: &Bed, policy: EgressPolicy) -> Result<Arc<dyn Sandbox>, String> {
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned).with_egress(policy);
    bed.provider.create(options).await.map_err(|error| error.to_string())
}

/// What a client in the sandbox prints: numbers.
async fn inside(sandbox: &dyn Sandbox, script: &str, arguments: &[&str]) -> Result<Vec<f64>, String> {
    let command = Command::new("python3").arg("-c").arg(script).args(arguments.iter().copied());
    let output = sandbox.commands().run(&command).await.map_err(|error| error.to_string())?;
    if !output.status.is_success() {
        return Err(format!("the client failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    numbers(&output.stdout)
}

/// What the same client on the host prints.
fn on_host(script: &str, arguments: &[&str]) -> Result<Vec<f64>, String> {
    let mut command = HostCommand::new("python3");
    command.arg("-c").arg(script).args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|why| format!("python3: {why}"))?;
    if !output.status.success() {
        return Err(format!("the client failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    numbers(&output.stdout)
}

fn numbers(text: &[u8]) -> Result<Vec<f64>, String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| line.trim().parse().map_err(|why| format!("`{line}`: {why}"))).collect()
}

fn note(samples: &mut Samples, outcome: Result<Vec<f64>, String>) {
    match outcome {
        Ok(values) => values.into_iter().for_each(|value| samples.value(value, Ok(()))),
        Err(why) => samples.value(f64::NAN, Err::<(), _>(why)),
    }
}

/// A relay on a thread of its own, as the gateway is; the answer is its port on loopback. It ends with the process.
fn relay(to: std::net::SocketAddr) -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|why| why.to_string())?;
    listener.set_nonblocking(true).map_err(|why| why.to_string())?;
    let port = listener.local_addr().map_err(|why| why.to_string())?.port();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|why| why.to_string())?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((mut inner, _)) = listener.accept().await {
                if let Ok(mut outer) = TcpStream::connect(to).await {
                    tokio::spawn(async move {
                        let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                    });
                }
            }
        });
    });
    Ok(port)
}
