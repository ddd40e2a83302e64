import assert from 'node:assert/strict'
import { rejects, until } from '../case.mjs'

// A time that no case reaches, in milliseconds.
const LONG = 1_800_000

export default function (define) {
  define('lifecycle/create-and-kill', async (c) => {
    const sandbox = await c.sandbox({ metadata: { of: 'a case' }, timeoutMs: LONG })
    assert.equal(await sandbox.isRunning(), true)
    const info = await sandbox.getInfo()
    assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', { of: 'a case' }])
    assert.ok(info.cpuCount > 0 && info.memoryMB > 0 && info.templateId)
    const span = info.endAt - info.startedAt
    assert.ok(span > LONG / 2 && span < LONG * 2, `it ends after ${span} ms`)
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await sandbox.kill(), false)
    await rejects(sandbox.getInfo(), c.sdk.NotFoundError)
  }, { smoke: true })

  define('lifecycle/unknown-ids', async (c) => {
    const { Sandbox, NotFoundError } = c.sdk
    assert.equal(await Sandbox.kill('nonexistingsandbox'), false)
    await rejects(Sandbox.connect('nonexistingsandbox'), NotFoundError)
    await rejects(Sandbox.getInfo('nonexistingsandbox'), NotFoundError)
    await rejects(Sandbox.setTimeout('nonexistingsandbox', 60_000), NotFoundError)
  })

  define('lifecycle/wrong-key', async (c) => {
    const apiKey = `e2b_${'0'.repeat(40)}`
    await rejects(c.sdk.Sandbox.create({ apiKey }), c.sdk.AuthenticationError)
  })

  define('lifecycle/unknown-template', async (c) => {
    await rejects(c.sdk.Sandbox.create('no-such-template'), c.sdk.SandboxError, /no-such-template/)
  })

  define('lifecycle/connect', async (c) => {
    const sandbox = await c.sandbox()
    await sandbox.files.write('here', 'yes')
    const again = await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal(again.sandboxId, sandbox.sandboxId)
    assert.equal(await again.files.read('here'), 'yes')
  }, { smoke: true })

  define('bug-16/connect-never-shortens', async (c) => {
    const sandbox = await c.sandbox({ timeoutMs: LONG })
    const { endAt } = await sandbox.getInfo()
    await c.sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 15_000 })
    assert.deepEqual((await sandbox.getInfo()).endAt, endAt)
    await c.sdk.Sandbox.connect(sandbox.sandboxId)
    assert.deepEqual((await sandbox.getInfo()).endAt, endAt)
    await c.sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 2 * LONG })
    assert.ok((await sandbox.getInfo()).endAt > endAt)
  })

  define('lifecycle/set-timeout', async (c) => {
    const sandbox = await c.sandbox({ timeoutMs: LONG })
    const before = (await sandbox.getInfo()).endAt
    await sandbox.setTimeout(LONG / 2)
    assert.ok((await sandbox.getInfo()).endAt < before)
    await sandbox.setTimeout(2 * LONG)
    assert.ok((await sandbox.getInfo()).endAt > before)
  })

  define('lifecycle/ends-at-its-timeout', async (c) => {
    const sandbox = await c.sandbox({ timeoutMs: 2000 })
    await until(async () => !(await sandbox.isRunning()), 'it is ended')
    await until(() => sandbox.getInfo().then(() => false, (error) => error instanceof c.sdk.NotFoundError), 'it is not found')
  })

  define('bug-1/streams-fail-when-it-is-killed', async (c) => {
    const sandbox = await c.sandbox()
    const handle = await sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 })
    const [error] = await Promise.all([rejects(handle.wait()), sandbox.kill()])
    assert.match(error.message, /killed or reached its end of life/)
    await rejects(sandbox.commands.run('true'), c.sdk.NotFoundError)
  })

  define('bug-21/all-streams-fail-when-it-is-killed', async (c) => {
    const sandbox = await c.sandbox()
    const start = () => sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 })
    const handles = await Promise.all(Array.from({ length: 20 }, start))
    await Promise.all([...handles.map((handle) => rejects(handle.wait())), sandbox.kill()])
  })

  define('bug-26/connect-while-it-is-killed', async (c) => {
    for (let i = 0; i < 5; i++) {
      const sandbox = await c.sandbox()
      const connect = c.sdk.Sandbox.connect(sandbox.sandboxId).then(() => 'connected', (error) => error)
      const [killed, connected] = await Promise.all([sandbox.kill(), connect])
      assert.equal(killed, true)
      // It came before, or it is told what became of it.
      if (connected !== 'connected') {
        assert.ok(connected instanceof c.sdk.NotFoundError || /^409/.test(connected.message), `${connected}`)
      }
      await rejects(c.sdk.Sandbox.connect(sandbox.sandboxId), c.sdk.NotFoundError)
    }
  })

  define('lifecycle/mcp-fails-clean', async (c) => {
    // Older ones leave the sandbox.
    c.since('2.39.0')
    const mark = c.unique('mcp')
    await rejects(c.sdk.Sandbox.create('base', { mcp: {}, metadata: { mark } }), c.sdk.SandboxError, /MCP gateway/)
    assert.deepEqual(await c.sdk.Sandbox.list({ query: { metadata: { mark } } }).nextItems(), [])
  })

  define('metrics/sandbox', async (c) => {
    const sandbox = await c.sandbox()
    const [first] = await until(async () => {
      const seen = await sandbox.getMetrics()
      return seen.length > 0 && seen
    }, 'there are metrics')
    assert.ok(first.cpuCount > 0 && first.memTotal > 0 && first.diskTotal > 0, JSON.stringify(first))
    assert.ok(first.timestamp instanceof Date)
    const past = { start: new Date(Date.now() - 7_200_000), end: new Date(Date.now() - 3_600_000) }
    assert.deepEqual(await sandbox.getMetrics(past), [])
  })

  define('bug-23/metrics-are-there', async (c) => {
    const sandbox = await c.sandbox()
    await sandbox.commands.run('true')
    await until(async () => (await sandbox.getMetrics()).length > 0, 'there are metrics')
  })
}
