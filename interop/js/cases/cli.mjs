// The official command line, as a program.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

// Longest a command of it may take, in milliseconds.
const LONGEST_COMMAND = 60_000

export default function (defineIn) {
  const define = (name, body) => defineIn(`cli/${name}`, body, { suite: 'cli' })

  const e2b = async (c, ...args) => {
    const program = join(c.packages, 'node_modules', '@e2b', 'cli', 'dist', 'index.js')
    const env = { ...process.env, NO_UPDATE_NOTIFIER: '1', CI: '1' }
    const options = { env, timeout: LONGEST_COMMAND, killSignal: 'SIGKILL' }
    const running = promisify(execFile)(process.execPath, [program, ...args], options)
    // It reads what is piped to it to the end.
    running.child.stdin.end()
    const { stdout, stderr } = await running
    return stdout + stderr
  }
  /** A sandbox by the package that the command line stands on. */
  const sandbox = async (c, options) => {
    const { Sandbox } = await import(new URL(`file://${join(c.packages, 'node_modules', 'e2b', 'dist', 'index.mjs')}`))
    const made = await Sandbox.create({ timeoutMs: 300_000, ...options })
    c.later(() => Sandbox.kill(made.sandboxId))
    return made
  }

  define('list', async (c) => {
    const mark = c.unique('cli')
    const { sandboxId } = await sandbox(c, { metadata: { mark } })
    const listed = JSON.parse(await e2b(c, 'sandbox', 'list', '--format', 'json', '--metadata', `mark=${mark}`))
    assert.deepEqual(listed.map((each) => each.sandboxId), [sandboxId])
    assert.match(await e2b(c, 'sandbox', 'list', '--metadata', `mark=${mark}`), new RegExp(sandboxId))
  })

  define('info', async (c) => {
    const { sandboxId } = await sandbox(c)
    assert.match(await e2b(c, 'sandbox', 'info', sandboxId), new RegExp(sandboxId))
  })

  define('exec', async (c) => {
    const { sandboxId } = await sandbox(c)
    assert.match(await e2b(c, 'sandbox', 'exec', sandboxId, '--', 'echo', 'from the command line'), /from the command line/)
  })

  define('kill', async (c) => {
    const made = await sandbox(c)
    await e2b(c, 'sandbox', 'kill', made.sandboxId)
    assert.equal(await made.isRunning(), false)
  })

  define('logs', async (c) => {
    const { sandboxId } = await sandbox(c)
    await e2b(c, 'sandbox', 'logs', sandboxId)
  })

  define('metrics', async (c) => {
    const { sandboxId } = await sandbox(c)
    await e2b(c, 'sandbox', 'metrics', sandboxId)
  })

  define('pause-and-resume', async (c) => {
    const made = await sandbox(c)
    await e2b(c, 'sandbox', 'pause', made.sandboxId)
    assert.equal(await made.isRunning(), false)
    await e2b(c, 'sandbox', 'resume', made.sandboxId)
    assert.equal(await made.isRunning(), true)
  })

  define('templates', async (c) => {
    await e2b(c, 'template', 'list', '--format', 'json')
  })
}
