use sandbar_rig::{Rig, inside};

use crate::inside::{Inside, has};

const SOCKET: &str = r"
import asyncio, sys, websockets
async def main():
    try:
        async with websockets.connect(sys.argv[1], open_timeout=1) as socket:
            await socket.send('hello')
            print(await socket.recv())
            await socket.send(b'x' * 100000)
            print(len(await socket.recv()))
    except Exception as e:
        print(type(e).__name__, getattr(e, 'status_code', ''))
asyncio.run(main())
";

#[test]
fn messages_go_both_ways() {
    inside("websocket::messages_go_both_ways", || {
        if !has("/usr/bin/python3") || !has("/usr/lib/python3/dist-packages/websockets") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("socket"), rig.host("denied"));
        let only_tls = rig.host("tls").0;
        let sandbox = Inside::allowed(rig, &[&name, &format!("{only_tls}:443")]);
        let talk = |url: &str| sandbox.works(&["/usr/bin/python3", "-c", SOCKET, url]);
        for scheme in ["ws", "wss"] {
            assert_eq!(talk(&format!("{scheme}://{name}/ws")), "hello\n100000\n");
            assert_eq!(talk(&format!("{scheme}://{denied}/ws")), "gaierror \n");
        }
        assert_eq!(talk(&format!("ws://{only_tls}/ws")), "InvalidStatusCode 403\n");
        sandbox.is_denied(&denied);
    });
}
