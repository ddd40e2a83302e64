//! What the kit can't see of the parts: ports from the host's side, the tunnel, mounts, and what an idle sandbox costs.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use sandbar_core::{
    Command, CreateOptions, ErrorKind, GuestPath, HostMount, MountAccess, PortMapping, ProviderExt,
    RunOptions, SandboxExt, SandboxProvider, SpawnOptions, UserName,
};

use crate::support::{Bed, create, eventually, has_root_inside, shim_pid};

/// A server that answers with what it got, once it got all of it.
const ECHO: &str = "import socket
s = socket.create_server(('127.0.0.1', 7000))
print('up', flush=True)
while True:
    c, _ = s.accept()
    got = b''
    while True:
        more = c.recv(65536)
        if not more: break
        got += more
    c.sendall(got)
    c.close()
";

fn has_python() -> bool {
    let has = std::path::Path::new("/usr/bin/python3").exists();
    if !has {
        println!("skipped: this machine has no /usr/bin/python3");
    }
    has
}

#[tokio::test]
async fn a_port_passes_bytes_and_each_half_ends_alone() {
    let Some(bed) = Bed::new() else { return };
    if !has_python() {
        return;
    }
    let sandbox = create(&bed.provider()).await;
    let ports = sandbox.require_ports().expect("ports");
    let refused = ports.dial(7000).await.expect_err("nothing listens yet");
    assert_eq!((refused.kind(), refused.retry()), (ErrorKind::Unavailable, sandbar_core::Retry::Safe));
    let server = Command::new("/usr/bin/python3").args(["-c", ECHO]);
    let processes = sandbox.require_processes().expect("processes");
    let mut process = processes.spawn(&server, SpawnOptions::new()).await.expect("a server");
    process.events.next().await.expect("a word").expect("from the server");

    let sent: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    // From any program of the host's.
    let mapping = ports.publish(7000).await.expect("published");
    assert_eq!(ports.publish(7000).await.expect("published"), mapping, "the same again");
    assert_eq!(ports.published().await.expect("a list"), std::slice::from_ref(&mapping));
    assert_eq!(sandbox.record().await.expect("a record").ports, std::slice::from_ref(&mapping));
    let url = sandbox.preview_url(7000).await.expect("an address");
    assert_eq!(url, format!("http://{}:{}", mapping.host, mapping.port));
    let whole = sent.clone();
    let address = (mapping.host.clone(), mapping.port);
    let got = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect((address.0.as_str(), address.1)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
        stream.write_all(&whole).expect("sent");
        stream.shutdown(Shutdown::Write).expect("its half ended");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("an answer");
        got
    });
    assert!(got.await.expect("no panic") == sent, "the bytes differ");

    // And through the contract.
    let stream = ports.dial(7000).await.expect("a connection");
    let (mut reader, mut writer) = stream.split();
    let writing = async {
        writer.write_all(&sent).await.expect("sent");
        writer.close().await.expect("its half ended");
    };
    let mut got = Vec::new();
    let reading = reader.read_to_end(&mut got);
    let ((), read) = futures::future::join(writing, reading).await;
    read.expect("an answer");
    assert!(got == sent, "the bytes differ");
    sandbox.destroy().await.expect("destroyed");
    assert!(TcpStream::connect((mapping.host.as_str(), mapping.port)).is_err(), "the address is free again");
    bed.assert_empty("after the server").await;
}

/// Whoever can connect to a published port of this machine can fill it, and nothing beside it.
#[tokio::test]
async fn a_crowded_port_shuts_no_other() {
    /// More than a port takes.
    const CROWD: usize = 600;
    const GREETER: &str = "
import socket
crowded, other = [socket.create_server(('127.0.0.1', port), backlog=1000) for port in (7001, 7002)]
print('on', flush=True)
while True:
    connection, _ = other.accept()
    connection.sendall(b'hi')
    connection.close()
";
    let Some(bed) = Bed::new() else { return };
    if !has_python() {
        return;
    }
    let sandbox = create(&bed.provider()).await;
    let ports = sandbox.require_ports().expect("ports");
    let server = Command::new("/usr/bin/python3").args(["-c", GREETER]);
    let processes = sandbox.require_processes().expect("processes");
    let mut process = processes.spawn(&server, SpawnOptions::new()).await.expect("a server");
    process.events.next().await.expect("a word").expect("from the server");
    let crowded = ports.publish(7001).await.expect("published");
    let other = ports.publish(7002).await.expect("published");
    let connect = |mapping: &PortMapping| TcpStream::connect((mapping.host.as_str(), mapping.port));
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let stream = connect(&crowded).expect("a connection");
            stream.set_nonblocking(true).expect("it does not block");
            stream
        })
        .collect();
    eventually("the port is full", async || {
        crowd.iter().any(|mut stream| matches!(stream.read(&mut [0]), Ok(0)))
    })
    .await;
    let stream = connect(&other).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    let greeting = tokio::task::spawn_blocking(move || {
        let mut greeting = String::new();
        (&stream).read_to_string(&mut greeting).map(|_| greeting)
    });
    assert_eq!(greeting.await.expect("no panic").expect("a greeting"), "hi");
    let mut dialled = ports.dial(7002).await.expect("a connection");
    let mut greeting = String::new();
    dialled.read_to_string(&mut greeting).await.expect("a greeting");
    assert_eq!(greeting, "hi");
    drop(crowd);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the crowd").await;
}

#[tokio::test]
async fn the_tunnel_leads_to_the_guests_own_api() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let guest = sandbox.require_guest().expect("a tunnel");
    assert_eq!(guest.protocol(), "connect-json/0.6.13");
    let mut stream = guest.connect().await.expect("a connection");
    let request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_read_only_mount_can_be_read_and_a_writable_one_is_the_users() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let folder = bed.scratch().join("shared");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("in"), "from the host").expect("a file");
    let mount = |access| {
        let target = GuestPath::new("/mnt/shared").expect("a path");
        CreateOptions::new().with_host_mount(HostMount { source: folder.clone(), target, access })
    };

    let sandbox = provider.create(mount(MountAccess::ReadOnly)).await.expect("a sandbox");
    let script = "cat /mnt/shared/in; echo no > /mnt/shared/in || echo refused";
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "from the hostrefused\n", "{}", output.stderr_lossy());
    sandbox.destroy().await.expect("destroyed");

    let sandbox = provider.create(mount(MountAccess::ReadWrite)).await.expect("a sandbox");
    let script = "id -un; echo from inside > /mnt/shared/out && stat -c %U /mnt/shared /mnt/shared/out";
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "user\nuser\nuser\n", "{}", output.stderr_lossy());
    let made = fs::metadata(folder.join("out")).expect("it is on the host");
    assert_eq!(made.uid(), fs::metadata(&folder).expect("the folder").uid(), "it is the folder's owner's");
    // A program that runs as another can't be planted.
    let script = "cp /bin/true /mnt/shared/su && chmod u+s /mnt/shared/su";
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("an output");
    let planted = fs::metadata(folder.join("su")).map_or(0, |data| data.permissions().mode());
    assert_eq!(planted & 0o6000, 0, "{output:?}");
    sandbox.destroy().await.expect("destroyed");
    assert_eq!(fs::read_to_string(folder.join("out")).expect("it stays"), "from inside\n");
    bed.assert_empty("after the mounts").await;
}

#[tokio::test]
async fn root_inside_is_there_or_refused_with_the_fix() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let as_root = RunOptions::default().with_user(UserName::new("root").expect("a name"));
    let ran =
        sandbox.commands().run_opts(&Command::shell("id -u; touch /root/mine && echo made"), as_root).await;
    if has_root_inside() {
        assert_eq!(ran.expect("an output").stdout_lossy(), "0\nmade\n");
    } else {
        let error = ran.expect_err("there is no root");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.hint().is_some());
    }
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn self_delivered_secrets_and_stored_ones_stay_where_they_belong() {
    use sandbar_core::EnvVars;
    const SECRET: &str = "s3cret-9271";
    const STORED: &str = "st0red-4410";
    let Some(bed) = Bed::new() else { return };
    let env = |name: &str, value: &str| EnvVars::new().with(name, value).expect("a variable");
    let options =
        CreateOptions::new().with_env(env("KEPT", STORED)).with_self_delivered_env(env("OWN", SECRET));
    let sandbox = bed.provider().create(options).await.expect("a sandbox");
    let output = sandbox.commands().run(&Command::shell("echo $KEPT-$OWN")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), format!("{STORED}-\n"));
    // In no command line or environment that others may read; what is stored stands in one file, for the owner alone, and the rest nowhere.
    let shim = shim_pid(&bed, sandbox.id()).expect("a shim");
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{shim}/{file}")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains(SECRET) && !text.contains(STORED), "{file}");
    }
    for file in fs::read_dir(bed.folder(sandbox.id())).expect("a folder").filter_map(Result::ok) {
        if file.file_type().is_ok_and(|kind| kind.is_file()) {
            let text = fs::read(file.path()).expect("a file");
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains(SECRET), "{}", file.path().display());
            if text.contains(STORED) {
                assert_eq!(file.file_name(), "orders.json");
                let mode = file.metadata().expect("its mode").permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
    }
    sandbox.destroy().await.expect("destroyed");
}

/// Most memory of its own that an idle shim may have, in bytes. Pages of the executable are not counted: they are shared with every other
/// shim and agent, and how many of them others use at this moment is chance.
const SHIM_MEMORY: u64 = 1 << 20;

#[tokio::test]
async fn an_idle_shim_is_small() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    sandbox.commands().run(&Command::new("true")).await.expect("an output");
    let shim = shim_pid(&bed, sandbox.id()).expect("a shim");
    let rollup = fs::read_to_string(format!("/proc/{shim}/smaps_rollup")).expect("its memory");
    let private: u64 = rollup
        .lines()
        .filter(|line| line.starts_with("Private_Dirty:"))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .sum::<u64>()
        * 1024;
    println!("an idle shim has {private} bytes of private memory");
    assert!(private <= SHIM_MEMORY, "{private} bytes\n{rollup}");
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn handles_from_different_providers_see_the_same() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let other = bed.provider().require(sandbox.id()).await.expect("a handle");
    sandbox.commands().run(&Command::shell("echo one > /tmp/file")).await.expect("an output");
    let output = other.commands().run(&Command::new("cat").arg("/tmp/file")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "one\n");
    assert!(other.destroy().await.expect("destroyed"));
    let error = sandbox.commands().run(&Command::new("true")).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!sandbox.destroy().await.expect("an answer"));
    bed.assert_empty("after both").await;
}
