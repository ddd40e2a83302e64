import assert from 'node:assert/strict'
import { rejects, until } from '../case.mjs'

const bytes = (text) => new TextEncoder().encode(text)

export default function (define) {
  define('pty/create', async (c) => {
    const sandbox = await c.shared()
    let seen = ''
    const terminal = await sandbox.pty.create({ cols: 91, rows: 31, envs: { A: 'b' }, cwd: '/tmp', onData: (data) => { seen += Buffer.from(data) } })
    await sandbox.pty.sendInput(terminal.pid, bytes('echo "[$(stty size) $A $PWD $TERM]"; exit 5\n'))
    const error = await rejects(terminal.wait(), c.sdk.CommandExitError)
    assert.equal(error.exitCode, 5)
    assert.match(seen, /\[31 91 b \/tmp xterm-256color\]/)
  })

  define('pty/resize', async (c) => {
    const sandbox = await c.shared()
    let seen = ''
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { seen += Buffer.from(data) } })
    await sandbox.pty.resize(terminal.pid, { cols: 133, rows: 44 })
    await sandbox.pty.sendInput(terminal.pid, bytes('echo "[$(stty size)]"\n'))
    await until(() => seen.includes('[44 133]'), 'the terminal has its new size')
    assert.equal(await sandbox.pty.kill(terminal.pid), true)
    await rejects(terminal.wait())
  })

  define('pty/connect', async (c) => {
    const sandbox = await c.shared()
    c.needs(sandbox.pty.connect)
    const first = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
    await first.disconnect()
    let seen = ''
    const second = await sandbox.pty.connect(first.pid, { onData: (data) => { seen += Buffer.from(data) } })
    await sandbox.pty.sendInput(second.pid, bytes('echo "<$((6 * 7))>"; exit\n'))
    assert.equal((await second.wait()).exitCode, 0)
    assert.match(seen, /<42>/)
    assert.equal(await sandbox.pty.kill(4_000_000), false)
  })
}
