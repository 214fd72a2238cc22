// A headless Chromium, spoken to over two pipes in the DevTools protocol: messages of JSON, each ended by a zero byte.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function launch(program) {
  const profile = mkdtempSync(join(tmpdir(), "site-check-"));
  const flags = [
    "--headless=new",
    "--remote-debugging-pipe",
    `--user-data-dir=${profile}`,
    // No request leaves this machine, whatever a page asks for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--no-first-run",
    // Unlike what the protocol can emulate, this reaches the pictures in a page.
    "--force-prefers-reduced-motion",
    // Its sandbox refuses to run as root.
    ...(process.getuid() === 0 ? ["--no-sandbox"] : []),
  ];
  const child = spawn(program, [...flags, "about:blank"], {
    stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
    detached: true,
  });
  const [, , errors, commands, answers] = child.stdio;
  const waiting = new Map();
  const listeners = new Map();
  let [last, rest, said] = [0, "", ""];

  errors.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-2000)));
  answers.setEncoding("utf8").on("data", (text) => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const { id, method, params, sessionId, result, error } of messages.map(JSON.parse)) {
      if (id === undefined) listeners.get(sessionId)?.(method, params);
      else if (error) waiting.get(id).reject(new Error(error.message));
      else waiting.get(id).resolve(result);
      waiting.delete(id);
    }
  });
  const ended = (why) => {
    for (const { reject } of waiting.values()) reject(new Error(`${program} ended: ${why}\n${said}`));
    waiting.clear();
  };
  child.on("error", (error) => ended(error.message)).on("exit", (code, signal) => ended(signal ?? code));
  commands.on("error", () => {});

  const send = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject });
      commands.write(JSON.stringify({ id: last, method, params, sessionId }) + "\0");
    });

  // A tab: what it is asked, and what it reports.
  async function tab(onEvent) {
    const { targetId } = await send("Target.createTarget", { url: "about:blank", newWindow: true });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    let loaded;
    listeners.set(sessionId, (method, params) => {
      if (method === "Page.loadEventFired") loaded?.();
      onEvent(method, params);
    });
    const ask = (method, params) => send(method, params, sessionId);
    for (const domain of ["Page", "Runtime", "Network", "Log"]) await ask(`${domain}.enable`);
    const open = async (url) => {
      const load = new Promise((resolve) => (loaded = resolve));
      const { errorText } = await ask("Page.navigate", { url });
      if (errorText) throw new Error(`${url}: ${errorText}`);
      await load;
    };
    // The value of an expression, once it is there.
    const value = async (expression) => {
      const options = { expression, awaitPromise: true, returnByValue: true };
      const { result, exceptionDetails } = await ask("Runtime.evaluate", options);
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    return { ask, open, value };
  }

  // Ends all of its processes, and removes what it wrote.
  function close() {
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch {
      // It has ended.
    }
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
  return { tab, close };
}
