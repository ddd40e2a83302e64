import assert from 'node:assert/strict'
import { rejects, until } from '../case.mjs'

export default function (define) {
  define('commands/foreground', async (c) => {
    const { exitCode, stdout, stderr } = await (await c.shared()).commands.run('echo out; echo err >&2')
    assert.deepEqual({ exitCode, stdout, stderr }, { exitCode: 0, stdout: 'out\n', stderr: 'err\n' })
  }, { smoke: true })

  define('commands/exit-code', async (c) => {
    const sandbox = await c.shared()
    const error = await rejects(sandbox.commands.run('echo before; exit 3'), c.sdk.CommandExitError)
    assert.equal(error.exitCode, 3)
    assert.equal(error.stdout, 'before\n')
  }, { smoke: true })

  define('commands/not-found', async (c) => {
    const error = await rejects((await c.shared()).commands.run('no-such-program'), c.sdk.CommandExitError)
    assert.equal(error.exitCode, 127)
  })

  define('commands/callbacks', async (c) => {
    let [out, err] = ['', '']
    await (await c.shared()).commands.run('echo 1; echo 2 >&2; echo 3', {
      onStdout: (text) => { out += text },
      onStderr: (text) => { err += text },
    })
    assert.deepEqual([out, err], ['1\n3\n', '2\n'])
  })

  define('commands/background', async (c) => {
    const handle = await (await c.shared()).commands.run('read -r line < <(echo later); echo $line', { background: true })
    assert.ok(handle.pid > 0)
    assert.equal((await handle.wait()).stdout, 'later\n')
  }, { smoke: true })

  define('commands/envs', async (c) => {
    const sandbox = await c.sandbox({ envs: { ALL: 'of the sandbox', BOTH: 'of the sandbox' } })
    const one = await sandbox.commands.run('echo "$ALL,$BOTH,$ONE"', { envs: { BOTH: 'of the call', ONE: 'x y' } })
    assert.equal(one.stdout, 'of the sandbox,of the call,x y\n')
    const two = await sandbox.commands.run('echo "$ALL,$BOTH,$ONE,$E2B_SANDBOX"')
    assert.equal(two.stdout, 'of the sandbox,of the sandbox,,true\n')
  })

  define('commands/cwd', async (c) => {
    const sandbox = await c.shared()
    assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    assert.equal((await sandbox.commands.run('pwd')).stdout, '/home/user\n')
    await rejects(sandbox.commands.run('pwd', { cwd: '/no/such' }), c.sdk.InvalidArgumentError, /does not exist/)
  })

  define('commands/users', async (c) => {
    const sandbox = await c.shared()
    assert.equal((await sandbox.commands.run('whoami')).stdout, 'user\n')
    assert.equal((await sandbox.commands.run('whoami', { user: 'root' })).stdout, 'root\n')
    assert.equal((await sandbox.commands.run('sudo -n whoami')).stdout, 'root\n')
    await rejects(sandbox.commands.run('whoami', { user: 'nobody-of-that-name' }), c.sdk.AuthenticationError)
  })

  define('commands/stdin', async (c) => {
    const sandbox = await c.shared()
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'one\n')
    await until(() => handle.stdout === 'one\n', 'the line is back')
    await sandbox.commands.sendStdin(handle.pid, 'two\n')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'one\ntwo\n')
  })

  define('bug-10/end-of-stdin', async (c) => {
    const sandbox = await c.shared()
    const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'x'.repeat(100_000))
    await sandbox.commands.closeStdin(handle.pid)
    const { exitCode, stdout } = await handle.wait()
    assert.deepEqual([exitCode, stdout.trim()], [0, '100000'])
  })

  define('bug-9/stdin-not-asked-for', async (c) => {
    const sandbox = await c.shared()
    assert.equal((await sandbox.commands.run('cat')).stdout, '')
    const handle = await sandbox.commands.run('sleep 300', { background: true })
    await rejects(sandbox.commands.sendStdin(handle.pid, 'x'), c.sdk.SandboxError, /stdin/)
    assert.equal(await handle.kill(), true)
  })

  define('commands/list-and-kill', async (c) => {
    const sandbox = await c.shared()
    const tag = c.unique('tag')
    const handle = await sandbox.commands.run(`: ${tag}; sleep 300`, { background: true, envs: { A: 'b' }, cwd: '/tmp' })
    const seen = (await sandbox.commands.list()).find((each) => each.pid === handle.pid)
    assert.equal(seen.cmd, '/bin/bash')
    assert.deepEqual(seen.args, ['-l', '-c', `: ${tag}; sleep 300`])
    assert.deepEqual([seen.cwd, seen.envs.A], ['/tmp', 'b'])
    assert.equal(await sandbox.commands.kill(handle.pid), true)
    await rejects(handle.wait(), c.sdk.CommandExitError)
    await until(async () => !(await sandbox.commands.list()).some((each) => each.pid === handle.pid), 'it is gone from the list')
    assert.equal(await sandbox.commands.kill(handle.pid), false)
  })

  define('commands/connect', async (c) => {
    const sandbox = await c.shared()
    const folder = await c.folder(sandbox)
    const first = await sandbox.commands.run(`until [ -e ${folder}/go ]; do sleep 0.05; done; echo went; exit 4`, { background: true })
    await first.disconnect()
    let heard = ''
    const second = await sandbox.commands.connect(first.pid, { onStdout: (text) => { heard += text } })
    await sandbox.files.write(`${folder}/go`, '')
    const error = await rejects(second.wait(), c.sdk.CommandExitError)
    assert.deepEqual([error.exitCode, heard, second.pid], [4, 'went\n', first.pid])
    await rejects(sandbox.commands.connect(4_000_000), c.sdk.NotFoundError)
  })

  define('bug-3/connect-later', async (c) => {
    const sandbox = await c.shared()
    // Without a limit, as the documents say for what is to go on.
    const first = await sandbox.commands.run('sleep 300; echo end', { background: true, timeoutMs: 0 })
    for (let i = 0; i < 5; i++) {
      const again = await sandbox.commands.connect(first.pid, { timeoutMs: 0 })
      assert.equal(again.pid, first.pid)
      await again.disconnect()
    }
    assert.equal(await sandbox.commands.kill(first.pid), true)
    await rejects(first.wait(), c.sdk.CommandExitError)
  })

  define('bug-2/ends-at-its-timeout', async (c) => {
    const sandbox = await c.shared()
    const tag = c.unique('tag')
    await rejects(sandbox.commands.run(`: ${tag}; sleep 300`, { timeoutMs: 1000 }), c.sdk.TimeoutError)
    const runs = async () => (await sandbox.commands.list()).some((each) => each.args.join(' ').includes(tag))
    await until(async () => !(await runs()), 'the process is ended')
  })

  define('bug-27/nothing-hangs', async (c) => {
    const sandbox = await c.sandbox()
    await rejects(sandbox.commands.run('sleep 300', { timeoutMs: 1000 }), c.sdk.TimeoutError)
    assert.equal((await sandbox.commands.run('echo still here')).stdout, 'still here\n')
  }, { smoke: true })

  define('bug-7/all-output-before-the-end', async (c) => {
    const sandbox = await c.shared()
    for (let i = 0; i < 20; i++) {
      const { stdout } = await sandbox.commands.run('seq 1 5000')
      assert.ok(stdout.endsWith('\n4999\n5000\n') && stdout.length === 23_893, `run ${i} has ${stdout.length} bytes`)
    }
  })

  define('commands/unicode', async (c) => {
    const { stdout } = await (await c.shared()).commands.run(`python3 -c 'print("x" + "€" * 50000, end="")'`)
    assert.equal(stdout, 'x' + '€'.repeat(50_000))
  })

  define('commands/at-once', async (c) => {
    const sandbox = await c.shared()
    const all = await Promise.all(Array.from({ length: 20 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
    assert.deepEqual(all.map((each) => each.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`))
  })

  define('bug-11/kills-the-tree', async (c) => {
    const sandbox = await c.shared()
    // A time that no other process sleeps, to be found by.
    const seconds = 100_000 + Math.floor(Math.random() * 800_000)
    const handle = await sandbox.commands.run(`bash -c 'sleep ${seconds} & wait'`, { background: true })
    const count = async () => Number((await sandbox.commands.run(`pgrep -c -x -f 'sleep ${seconds}' || true`)).stdout)
    await until(async () => (await count()) === 1, 'the grandchild runs')
    assert.equal(await handle.kill(), true)
    await until(async () => (await count()) === 0, 'the grandchild is ended')
    await rejects(handle.wait(), c.sdk.CommandExitError)
  })

  define('git/local', async (c) => {
    const sandbox = await c.shared()
    const path = await c.folder(sandbox)
    await sandbox.git.init(path)
    await sandbox.git.configureUser('Ada', 'ada@example.com', { scope: 'local', path })
    await sandbox.files.write(`${path}/a.txt`, 'a')
    await sandbox.git.add(path)
    await sandbox.git.commit(path, 'first')
    const status = await sandbox.git.status(path)
    assert.equal(status.isClean, true)
  })
}
