import assert from 'node:assert/strict'
import { rejects } from '../case.mjs'

export default function (defineIn) {
  const define = (name, body) => defineIn(`interpreter/${name}`, body, { suite: 'interpreter' })

  define('state', async (c) => {
    const sandbox = await c.sandbox()
    await sandbox.runCode('x = 41')
    const { text, executionCount } = await sandbox.runCode('x + 1')
    assert.deepEqual([text, executionCount], ['42', 2])
  })

  define('streams', async (c) => {
    const [out, err] = [[], []]
    const execution = await (await c.shared()).runCode('import sys; print("one"); print("two", file=sys.stderr)', {
      onStdout: (line) => { out.push(line.line) }, onStderr: (line) => { err.push(line.line) },
    })
    assert.deepEqual([out.join(''), err.join('')], ['one\n', 'two\n'])
    assert.equal(execution.logs.stdout.join(''), 'one\n')
  })

  define('errors', async (c) => {
    const { error } = await (await c.shared()).runCode('1 / 0')
    assert.equal(error.name, 'ZeroDivisionError')
    assert.match(error.traceback, /1 \/ 0/)
  })

  define('rich-results', async (c) => {
    const { results } = await (await c.shared()).runCode(`
from IPython.display import display, HTML, Markdown, SVG, JSON, Latex
display(HTML("<b>h</b>")); display(Markdown("*m*")); display(SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
display(JSON({"a": 1})); display(Latex("$x$"))
`)
    const of = (format) => results.find((each) => each[format])?.[format]
    assert.deepEqual([of('html'), of('markdown'), of('latex')], ['<b>h</b>', '*m*', '$x$'])
    assert.match(of('svg'), /<svg/)
    assert.deepEqual(of('json'), { a: 1 })
  })

  define('envs', async (c) => {
    const sandbox = await c.sandbox({ envs: { ALL: 'sandbox' } })
    const code = 'import os; (os.environ.get("ALL"), os.environ.get("ONE"))'
    assert.equal((await sandbox.runCode(code, { envs: { ONE: 'call' } })).text, "('sandbox', 'call')")
    assert.equal((await sandbox.runCode(code)).text, "('sandbox', None)")
  })

  define('contexts', async (c) => {
    const sandbox = await c.sandbox()
    const context = await sandbox.createCodeContext({ cwd: '/tmp' })
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
    await sandbox.runCode('x = 1', { context })
    assert.equal((await sandbox.runCode('import os; (x, os.getcwd())', { context })).text, "(1, '/tmp')")
    assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
    assert.ok((await sandbox.listCodeContexts()).some((each) => each.id === context.id))
    await sandbox.restartCodeContext(context)
    assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
    await sandbox.removeCodeContext(context)
    await rejects(sandbox.runCode('1', { context }), c.sdk.NotFoundError)
  })

  define('javascript', async (c) => {
    const sandbox = await c.shared()
    await sandbox.runCode('const x = 20; let y = 1', { language: 'js' })
    assert.equal((await sandbox.runCode('x + y', { language: 'javascript' })).text, '21')
    const { logs } = await sandbox.runCode('console.log("printed")', { language: 'js' })
    assert.equal(logs.stdout.join(''), 'printed\n')
  })

  define('bash', async (c) => {
    const { logs } = await (await c.shared()).runCode('x=3; echo $((x * 2))', { language: 'bash' })
    assert.equal(logs.stdout.join(''), '6\n')
  })

  define('timeout', async (c) => {
    const sandbox = await c.sandbox()
    await rejects(sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 2000 }), c.sdk.TimeoutError)
    // Whoever gives up interrupts: the kernel is free again.
    assert.equal((await sandbox.runCode('"free"')).text, 'free')
  })

  define('token-demanded', async (c) => {
    const sandbox = await c.shared()
    const headers = { 'content-type': 'application/json', 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49999' }
    const answer = await fetch(`${process.env.E2B_SANDBOX_URL}/execute`, { method: 'POST', headers, body: '{"code":"1"}' })
    assert.ok([401, 403].includes(answer.status), `${answer.status}`)
  })
}
