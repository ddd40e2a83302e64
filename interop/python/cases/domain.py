"""With a domain of its own: names `PORT-ID.DOMAIN`, over TLS. The names are looked up by the test, since no resolver knows them."""

import os
import socket
import ssl

from case import define, equal, go, request, until


@define("domain/host-of-a-port", suite="domain")
async def host_of_a_port(c):
    domain = os.environ["INTEROP_DOMAIN"]
    known, look_up = domain.split(":")[0], socket.getaddrinfo

    def ours(host, *args, **kwargs):
        return look_up("127.0.0.1" if str(host).endswith(known) else host, *args, **kwargs)

    socket.getaddrinfo = ours
    sandbox = await c.sandbox()
    await go(sandbox.files.write("www/index.html", "by its name"))
    await go(sandbox.commands.run("exec python3 -m http.server 8000 -d www", background=True, timeout=0))
    host = sandbox.get_host(8000)
    equal(host, f"8000-{sandbox.sandbox_id}.{domain}")
    trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])

    async def answers():
        seen = await request(f"https://{host}/", context=trust)
        return seen if seen.status == 200 else None

    equal((await until(answers, "the server answers")).body, b"by its name")
