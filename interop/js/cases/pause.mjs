import assert from 'node:assert/strict'
import { rejects, toPort, until } from '../case.mjs'

// A web server that counts its answers: what it says shows whether it is the same process.
const COUNTER = `
import http.server
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(Counter.count).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("0.0.0.0", 8080), Counter).serve_forever()
`

/** Starts the counter and waits until it has answered once. */
async function counter(sandbox) {
  await sandbox.files.write('counter.py', COUNTER)
  const handle = await sandbox.commands.run('exec python3 counter.py', { background: true, timeoutMs: 0 })
  await until(async () => (await toPort(sandbox, 8080).catch(() => undefined))?.ok, 'the server answers')
  return handle.pid
}

export default function (define) {
  define('pause/a-running-server', async (c) => {
    const sandbox = await c.sandbox()
    const pid = await counter(sandbox)
    await sandbox.files.write('kept', 'yes')
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    assert.equal(await sandbox.pause(), false)
    const refused = await toPort(sandbox, 8080)
    assert.equal(refused.status, 502)
    assert.match(await refused.text(), /was not found/)
    const again = await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal(await (await toPort(again, 8080)).text(), '2')
    assert.equal(await again.files.read('kept'), 'yes')
    assert.ok((await again.commands.list()).some((each) => each.pid === pid))
    // The handle from before the pause goes on with the same token.
    assert.equal((await sandbox.commands.run('echo same')).stdout, 'same\n')
  })

  define('pause/kill-while-paused', async (c) => {
    const sandbox = await c.sandbox()
    await sandbox.pause()
    assert.equal(await sandbox.kill(), true)
    await rejects(c.sdk.Sandbox.connect(sandbox.sandboxId), c.sdk.NotFoundError)
    assert.equal(await sandbox.kill(), false)
  })

  define('pause/a-new-timeout', async (c) => {
    const sandbox = await c.sandbox({ timeoutMs: 60_000 })
    await sandbox.pause()
    const again = await c.sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_800_000 })
    assert.ok((await again.getInfo()).endAt - Date.now() > 900_000)
  })

  define('bug-5/output-after-each-resume', async (c) => {
    const sandbox = await c.sandbox()
    const handle = await sandbox.commands.run('while read -r line; do echo "got $line"; done', { background: true, stdin: true, timeoutMs: 0 })
    handle.wait().catch(() => {})
    for (let i = 0; i < 6; i++) {
      await sandbox.pause()
      const again = await c.sdk.Sandbox.connect(sandbox.sandboxId)
      let heard = ''
      const attached = await again.commands.connect(handle.pid, { timeoutMs: 0, onStdout: (text) => { heard += text } })
      attached.wait().catch(() => {})
      await again.commands.sendStdin(handle.pid, `${i}\n`)
      await until(() => heard.includes(`got ${i}\n`), `cycle ${i} is answered`)
    }
  })

  define('bug-13/every-cycle-keeps-files', async (c) => {
    const sandbox = await c.sandbox()
    for (let i = 0; i < 5; i++) {
      await sandbox.files.write(`cycle/${i}`, `of ${i}`)
      await sandbox.pause()
      await c.sdk.Sandbox.connect(sandbox.sandboxId)
      for (let j = 0; j <= i; j++) assert.equal(await sandbox.files.read(`cycle/${j}`), `of ${j}`)
    }
  })

  const paused = (sandbox) => until(async () => (await sandbox.getInfo()).state === 'paused', 'it is paused')

  define('bug-12/list-after-auto-pause', async (c) => {
    const sandbox = await c.sandbox({ lifecycle: { onTimeout: 'pause' } })
    assert.equal((await sandbox.getInfo()).lifecycle.onTimeout, 'pause')
    const pid = await counter(sandbox)
    await sandbox.setTimeout(1000)
    await paused(sandbox)
    const again = await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal(await (await toPort(again, 8080)).text(), '2')
    assert.ok((await again.commands.list()).some((each) => each.pid === pid))
  })

  define('pause/auto-resume', async (c) => {
    const sandbox = await c.sandbox({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    assert.equal((await sandbox.getInfo()).lifecycle.autoResume, true)
    await counter(sandbox)
    await sandbox.pause()
    assert.equal((await sandbox.getInfo()).state, 'paused')
    assert.equal(await (await toPort(sandbox, 8080)).text(), '2')
    assert.equal((await sandbox.getInfo()).state, 'running')
    await sandbox.pause()
    assert.equal((await sandbox.commands.run('echo woken')).stdout, 'woken\n')
  })

  define('bug-28/without-memory', async (c) => {
    // Either honoured, which a new start of the sandbox shows, or refused.
    const lifecycle = { onTimeout: { action: 'pause', keepMemory: false } }
    let sandbox
    try {
      sandbox = await c.sandbox({ lifecycle })
    } catch (error) {
      assert.match(error.message, /^400: /)
      return
    }
    await counter(sandbox)
    await sandbox.setTimeout(1000)
    await paused(sandbox)
    await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal((await toPort(sandbox, 8080)).status, 502)
  })

  define('bug-28/pause-without-memory', async (c) => {
    const sandbox = await c.sandbox()
    await counter(sandbox)
    await sandbox.files.write('kept', 'yes')
    try {
      await sandbox.pause({ keepMemory: false })
    } catch (error) {
      assert.match(error.message, /^400: /)
      assert.equal(await sandbox.isRunning(), true)
      return
    }
    await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal(await sandbox.files.read('kept'), 'yes')
    assert.equal((await toPort(sandbox, 8080)).status, 502)
  })
}
