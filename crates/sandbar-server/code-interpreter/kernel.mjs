// The JavaScript kernel: runs cells in one process that keeps its state. Spoken to by `javascript.py`, one JSON object a line:
// cells come on the first descriptor that it is told, what becomes of them goes out on the second, and a line on the third interrupts what runs.
import fs from 'node:fs'
import inspector from 'node:inspector'
import { createRequire } from 'node:module'
import * as moduleApi from 'node:module'
import path from 'node:path'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'
import util from 'node:util'
import { Worker } from 'node:worker_threads'

const [CELLS, EVENTS, INTERRUPTS] = process.argv.slice(2, 5).map(Number)
// What says on both outputs where a cell ended.
const MARK = process.argv[5] + '\n'

const pause = new Int32Array(new SharedArrayBuffer(4))

function writeAll(descriptor, text) {
  const bytes = Buffer.from(text)
  for (let sent = 0; sent < bytes.length; ) {
    try {
      sent += fs.writeSync(descriptor, bytes, sent)
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      // Whoever reads is slow.
      Atomics.wait(pause, 0, 0, 1)
    }
  }
}

const send = (event) => writeAll(EVENTS, JSON.stringify(event) + '\n')

// What a cell prints goes the same way as its result, so that the order stays.
function capture(stream, type) {
  const decoder = new util.TextDecoder('utf-8')
  stream.write = (chunk, encoding, done) => {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk
    const text = decoder.decode(bytes, { stream: true })
    if (text) send({ type, text })
    const callback = typeof encoding === 'function' ? encoding : done
    if (typeof callback === 'function') process.nextTick(callback)
    return true
  }
}
capture(process.stdout, 'stdout')
capture(process.stderr, 'stderr')

// The number of the cell that runs, 0 if none does; both threads see it.
const running = new Int32Array(new SharedArrayBuffer(4))

// A thread of its own hears interrupts while the cell keeps this one busy. One that merely waits is left, which this thread does itself; only what does not
// get to that is terminated: a termination that finds nothing to terminate would meet whatever comes next.
let stop = () => {}
const listener = new Worker(
  `const { parentPort, workerData } = require('node:worker_threads')
   const { Session } = require('node:inspector')
   const session = new Session()
   session.connectToMainThread()
   require('node:fs').createReadStream(null, { fd: ${INTERRUPTS}, autoClose: false }).on('data', () => {
     const cell = Atomics.load(workerData, 0)
     if (cell === 0) return
     parentPort.postMessage(cell)
     setTimeout(() => {
       if (Atomics.load(workerData, 0) === cell) session.post('Runtime.terminateExecution', () => {})
     }, 100)
   })`,
  { eval: true, workerData: running },
)
listener.on('message', (cell) => {
  if (Atomics.load(running, 0) === cell) stop()
})
listener.unref()

const session = new inspector.Session()
session.connect()
const post = (method, params) =>
  new Promise((resolve, reject) => session.post(method, params, (error, value) => (error ? reject(error) : resolve(value))))

// Names of modules mean what they would in a file in the working folder.
const here = () => path.join(process.cwd(), 'cell.js')
function load(name) {
  const text = String(name)
  if (/^(node:|file:|data:)/.test(text) || moduleApi.builtinModules.includes(text)) return import(text)
  return import(pathToFileURL(createRequire(here()).resolve(text)).href)
}

const LOAD = '__load'
const hidden = { enumerable: false, configurable: true, writable: true }
Object.defineProperty(globalThis, LOAD, { value: load, ...hidden })
Object.defineProperty(globalThis, 'require', { value: createRequire(here()), ...hidden })
Object.defineProperty(globalThis, 'display', { value: (value) => send({ type: 'display', data: shown(value) }), ...hidden })
Object.defineProperty(globalThis, '__shown', { value: (value) => JSON.stringify(shown(value)), ...hidden })

// The forms in which a value can be shown, by media type.
function shown(value) {
  const own = value?.[Symbol.for('Jupyter.display')]
  if (typeof own === 'function') return own.call(value)
  const text = typeof value === 'string' ? value : util.inspect(value)
  return { 'text/plain': text }
}

// Where code is code and not a string, a comment or a regular expression: `[start, end)` of each stretch.
function stretches(code) {
  const found = []
  let start = 0
  let index = 0
  const braces = []
  const skip = (end) => {
    found.push([start, index])
    index = end
    start = end
  }
  const quoted = (quote) => {
    let at = index + 1
    while (at < code.length && code[at] !== quote && code[at] !== '\n') at += code[at] === '\\' ? 2 : 1
    return at + 1
  }
  // From after a backtick or the end of a substitution to the next substitution or the end.
  const template = (at) => {
    for (; at < code.length; at += 1) {
      if (code[at] === '\\') at += 1
      else if (code[at] === '`') return at + 1
      else if (code[at] === '$' && code[at + 1] === '{') {
        braces.push('$')
        return at + 2
      }
    }
    return at
  }
  const until = (text, from) => {
    const at = code.indexOf(text, from)
    return at < 0 ? code.length : at + text.length
  }
  while (index < code.length) {
    const two = code.slice(index, index + 2)
    const one = code[index]
    if (two === '//') skip(until('\n', index))
    else if (two === '/*') skip(until('*/', index + 2))
    else if (one === '"' || one === "'") skip(quoted(one))
    else if (one === '`') skip(template(index + 1))
    else if (one === '{') {
      braces.push('{')
      index += 1
    } else if (one === '}') {
      if (braces.pop() === '$') skip(template(index + 1))
      else index += 1
    } else if (one === '/' && /(^|[=([{,;!&|?:+\-*%<>~^]|\b(?:return|typeof|case|in|of|void|delete|await))\s*$/.test(code.slice(0, index))) {
      let at = index + 1
      for (let inClass = false; at < code.length && code[at] !== '\n' && (inClass || code[at] !== '/'); at += 1) {
        if (code[at] === '\\') at += 1
        else if (code[at] === '[') inClass = true
        else if (code[at] === ']') inClass = false
      }
      skip(at + 1)
    } else index += 1
  }
  found.push([start, index])
  return found
}

// `import` is for files: a cell that has it gets the same by a function.
const STATIC = /^import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:from\s*)?(["'])([^"'\n]+)\4(?:\s+with\s*\{[^}]*\})?[ \t]*;?/
function withoutImports(code) {
  if (!code.includes('import')) return code
  let result = ''
  let done = 0
  for (const [start, end] of stretches(code)) {
    for (const match of code.slice(start, end).matchAll(/(?<![\w$.])import\b/g)) {
      const at = start + match.index
      if (at < done) continue
      const rest = code.slice(at)
      const call = /^import\s*\(/.exec(rest)
      const statement = /(^|[\n;}])\s*$/.test(code.slice(0, at)) && STATIC.exec(rest)
      if (call) {
        result += code.slice(done, at) + LOAD + '('
        done = at + call[0].length
      } else if (statement) {
        const [all, whole, star, names, , from] = statement
        const loaded = `await ${LOAD}(${JSON.stringify(from)})`
        const parts = []
        if (whole) parts.push(`default: ${whole}`)
        if (names) parts.push(...names.split(',').map((name) => name.trim().replace(/\s+as\s+/, ': ')).filter(Boolean))
        const lines = []
        if (star) lines.push(`const ${star} = ${loaded}`)
        if (parts.length) lines.push(`const { ${parts.join(', ')} } = ${loaded}`)
        if (!lines.length) lines.push(loaded)
        result += code.slice(done, at) + lines.join('; ') + ';'
        done = at + all.length
      }
    }
  }
  return result + code.slice(done)
}

function withoutTypes(code) {
  return moduleApi.stripTypeScriptTypes(code, { mode: 'transform' })
}

function failure(result, details) {
  if (result.type !== 'object' || result.subtype !== 'error') {
    const value = result.description ?? String(result.value)
    return { name: 'Error', value: `Uncaught ${value}`, traceback: `Uncaught ${value}` }
  }
  const lines = (result.description ?? details.text).split('\n')
  // What lies below is this file's.
  const own = lines.findIndex((line) => line.includes('node:inspector') || line.includes('kernel.mjs'))
  const traceback = (own < 0 ? lines : lines.slice(0, own)).join('\n')
  const head = lines.findIndex((line) => /^\s+at /.test(line))
  const message = (head < 0 ? lines : lines.slice(0, head)).join('\n')
  const name = result.className ?? 'Error'
  const prefix = /^[\w$.]+(?: \[[A-Z_]+\])?: /.exec(message)
  return { name, value: prefix ? message.slice(prefix[0].length) : message, traceback }
}

// What the inspector says of a cell that was stopped.
const TERMINATED = 'Execution was terminated'

async function run({ code, language, env }) {
  const before = {}
  for (const [name, value] of Object.entries(env ?? {})) {
    before[name] = process.env[name]
    process.env[name] = value
  }
  try {
    const source = withoutImports(language === 'typescript' ? withoutTypes(code) : code)
    const stopped = new Promise((_, reject) => {
      stop = () => reject(new Error(TERMINATED))
    })
    const evaluated = post('Runtime.evaluate', {
      expression: source,
      replMode: true,
      awaitPromise: true,
      objectGroup: 'cell',
    })
    evaluated.catch(() => {})
    const { result, exceptionDetails } = await Promise.race([evaluated, stopped])
    if (exceptionDetails) {
      send({ type: 'error', ...failure(exceptionDetails.exception ?? result, exceptionDetails) })
    } else if (result.type !== 'undefined') {
      const argument = result.objectId
        ? { objectId: result.objectId }
        : result.unserializableValue
          ? { unserializableValue: result.unserializableValue }
          : { value: result.value }
      const { result: global } = await post('Runtime.evaluate', { expression: 'globalThis', objectGroup: 'cell' })
      const answer = await post('Runtime.callFunctionOn', {
        objectId: global.objectId,
        functionDeclaration: 'function (value) { return __shown(value) }',
        arguments: [argument],
        returnByValue: true,
      })
      if (answer.exceptionDetails) {
        const thrown = answer.exceptionDetails
        send({ type: 'error', ...failure(thrown.exception ?? answer.result, thrown) })
      } else send({ type: 'result', data: JSON.parse(answer.result.value) })
    }
  } catch (error) {
    const wasStopped = String(error?.message).includes(TERMINATED)
    const name = wasStopped ? 'KeyboardInterrupt' : (error?.name ?? 'Error')
    const value = wasStopped ? 'interrupted' : String(error?.message ?? error)
    send({ type: 'error', name, value, traceback: `${name}: ${value}` })
  } finally {
    stop = () => {}
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
    post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }).catch(() => {})
  }
}

// An error that nobody waits for is said and ends nothing.
const say = (error) => process.stderr.write(`Uncaught ${error?.stack ?? util.inspect(error)}\n`)
process.on('uncaughtException', say)
process.on('unhandledRejection', say)

const cells = readline.createInterface({ input: fs.createReadStream(null, { fd: CELLS, autoClose: false }) })
send({ type: 'ready', typescript: typeof moduleApi.stripTypeScriptTypes === 'function' })
let last = Promise.resolve()
cells.on('line', (line) => {
  const cell = JSON.parse(line)
  last = last.then(async () => {
    Atomics.store(running, 0, cell.id)
    await run(cell)
    Atomics.store(running, 0, 0)
    writeAll(1, MARK)
    writeAll(2, MARK)
    send({ type: 'done' })
  })
})
cells.on('close', () => process.exit(0))
