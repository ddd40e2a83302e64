import assert from 'node:assert/strict'
import { rejects, toPort, until } from '../case.mjs'

// A web server that says what it was asked.
const ECHO = `
import http.server, json
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path, "host": self.headers["host"]}).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("0.0.0.0", 8080), Echo).serve_forever()
`

async function echo(sandbox, headers) {
  await sandbox.files.write('echo.py', ECHO)
  await sandbox.commands.run('exec python3 echo.py', { background: true, timeoutMs: 0 })
  await until(async () => (await toPort(sandbox, 8080, '/', { headers }).catch(() => undefined))?.ok, 'the server answers')
}

export default function (define) {
  define('network/ports', async (c) => {
    const sandbox = await c.sandbox()
    const closed = await toPort(sandbox, 8080)
    assert.equal(closed.status, 502)
    assert.deepEqual(await closed.json(), {
      sandboxId: sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 8080, code: 502,
    })
    await echo(sandbox)
    assert.equal((await (await toPort(sandbox, 8080, '/a%20b?c=d')).json()).path, '/a%20b?c=d')
    const unknown = await toPort({ sandboxId: 'inonexistingsandbox' }, 8080)
    assert.equal(unknown.status, 502)
    assert.equal((await unknown.json()).message, 'The sandbox was not found')
  })

  define('network/private-ports', async (c) => {
    const sandbox = await c.sandbox({ network: { allowPublicTraffic: false } })
    assert.ok(sandbox.trafficAccessToken)
    const headers = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
    await echo(sandbox, headers)
    assert.equal((await toPort(sandbox, 8080)).status, 403)
    assert.equal((await toPort(sandbox, 8080, '/', { headers: { 'e2b-traffic-access-token': 'wrong' } })).status, 403)
    assert.equal((await sandbox.commands.run('echo in')).stdout, 'in\n')
  })

  define('network/masked-host', async (c) => {
    const sandbox = await c.sandbox({ network: { maskRequestHost: 'custom-host.example.com:${PORT}' } })
    await echo(sandbox)
    assert.equal((await (await toPort(sandbox, 8080)).json()).host, 'custom-host.example.com:8080')
  })

  define('network/described', async (c) => {
    const sandbox = await c.sandbox({
      network: { allowOut: ['1.1.1.1', '*.example.com'], denyOut: [c.sdk.ALL_TRAFFIC] },
    })
    const { network } = await sandbox.getInfo()
    assert.deepEqual(network.denyOut, ['0.0.0.0/0'])
    assert.ok(network.allowOut.includes('*.example.com'), `${network.allowOut}`)
    await sandbox.updateNetwork({ denyOut: ['8.8.8.8/32'] })
    const now = (await sandbox.getInfo()).network
    assert.deepEqual([now.denyOut, now.allowOut ?? []], [['8.8.8.8/32'], []])
  })

  define('network/refused-rules', async (c) => {
    const create = (network) => rejects(c.sdk.Sandbox.create({ network }), c.sdk.SandboxError)
    const missing = await create({ allowOut: ['example.com'] })
    assert.match(missing.message, /you must include 'ALL_TRAFFIC' in deny out/)
    assert.match((await create({ denyOut: ['example.com'] })).message, /400/)
  })

  const reach = (sandbox, url) =>
    sandbox.commands.run(`curl -sS -o /dev/null -w '%{http_code}' --max-time 20 ${url}`).then(
      ({ stdout }) => stdout,
      (error) => `failed: ${error.exitCode ?? error}`
    )

  // The addresses are the test rig's: outside of it nothing is sent.
  const outside = (name, body) =>
    define(name, async (c) => {
      c.rig()
      await body(c)
    })

  outside('network/open-by-default', async (c) => {
    assert.equal(await reach(await c.sandbox(), c.rig().url), '200')
  })

  outside('network/no-internet', async (c) => {
    assert.match(await reach(await c.sandbox({ allowInternetAccess: false }), c.rig().url), /^failed/)
  })

  outside('network/denied-address', async (c) => {
    const { url, address } = c.rig()
    const sandbox = await c.sandbox({ network: { denyOut: [`${address}/32`] } })
    assert.match(await reach(sandbox, `http://${address}/`), /^failed/)
    // By its name it is the same address.
    assert.match(await reach(sandbox, url), /^failed/)
    await sandbox.updateNetwork({})
    assert.equal(await reach(sandbox, url), '200')
    await sandbox.updateNetwork({ allowInternetAccess: false })
    assert.match(await reach(sandbox, url), /^failed/)
  })

  outside('network/allowed-name', async (c) => {
    const { url, other } = c.rig()
    const network = { allowOut: [new URL(url).hostname], denyOut: [c.sdk.ALL_TRAFFIC] }
    const sandbox = await c.sandbox({ network })
    assert.equal(await reach(sandbox, url), '200')
    assert.match(await reach(sandbox, other), /^failed/)
  })
}
