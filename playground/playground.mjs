// The playground of the documentation (docs/playground.md). What it shows is the answer of playground.wasm, the program in
// src/: a command that reads a question from its standard input and writes the answer to its standard output. This file runs
// it with what a command of WASI needs of its surroundings, and shows the answer. It asks no server for anything else.

const NOT_SUPPORTED = 52;

// Runs the program once, in a new instance: no question sees anything of the one before.
async function run(program, question) {
  let instance;
  let input = new TextEncoder().encode(JSON.stringify(question));
  const said = { 1: "", 2: "" };
  const decoders = { 1: new TextDecoder(), 2: new TextDecoder() };
  class Exit extends Error {}
  const view = () => new DataView(instance.exports.memory.buffer);
  const bytes = (at, length) => new Uint8Array(instance.exports.memory.buffer, at, length);
  // The buffers of a call: for each, what of it was used.
  const through = (vectors, count, total, each) => {
    let used = 0;
    for (let at = vectors; at < vectors + 8 * count; at += 8)
      used += each(bytes(view().getUint32(at, true), view().getUint32(at + 4, true)));
    view().setUint32(total, used, true);
    return 0;
  };
  const none = (count, size) => {
    view().setUint32(count, 0, true);
    view().setUint32(size, 0, true);
    return 0;
  };
  const provided = {
    fd_read: (_, vectors, count, total) =>
      through(vectors, count, total, (buffer) => {
        const part = input.subarray(0, buffer.length);
        buffer.set(part);
        input = input.subarray(part.length);
        return part.length;
      }),
    fd_write: (file, vectors, count, total) =>
      through(vectors, count, total, (buffer) => {
        said[file] += decoders[file].decode(buffer, { stream: true });
        return buffer.length;
      }),
    environ_sizes_get: none,
    environ_get: () => 0,
    args_sizes_get: none,
    args_get: () => 0,
    clock_time_get: (_id, _precision, at) => {
      view().setBigUint64(at, BigInt(Date.now()) * 1_000_000n, true);
      return 0;
    },
    random_get: (at, length) => {
      crypto.getRandomValues(bytes(at, length));
      return 0;
    },
    proc_exit: (code) => {
      throw new Exit(`exit code ${code}`);
    },
  };
  const wanted = WebAssembly.Module.imports(program).map(({ name }) => [name, provided[name] ?? (() => NOT_SUPPORTED)]);
  instance = await WebAssembly.instantiate(program, { wasi_snapshot_preview1: Object.fromEntries(wanted) });
  try {
    instance.exports._start();
  } catch (error) {
    throw new Error(`the program failed: ${said[2] || error.message}`);
  }
  return JSON.parse(said[1]);
}

// An element of the page. Texts of others are only ever set as text.
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && !key.startsWith("aria")) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Calls `ask` with the latest value, once it has not changed for a moment; of several answers, only the latest is shown.
function latest(ask, show) {
  let [turn, timer] = [0, 0];
  return (value) => {
    const mine = ++turn;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      let answer;
      try {
        answer = await ask(value);
      } catch (error) {
        answer = { failed: error.message };
      }
      if (mine === turn) show(answer, value);
    }, 150);
  };
}

// What is shown can be waited for.
const answered = (panel, detail) => panel.dispatchEvent(new CustomEvent("answered", { detail, bubbles: true }));

// Of a field in which the browser is to change and mark nothing.
const AS_TYPED = { spellcheck: false, autocapitalize: "off", autocomplete: "off" };

// A warning says itself that it is one.
const LEVELS = { error: "unreadable: ", fault: "fault: ", warning: "" };

function manifests(program, samples) {
  const choice = element("select", { id: "playground-sample" });
  for (const [index, { file }] of samples.entries()) choice.append(element("option", { value: index }, file));
  const numbers = element("pre", { className: "playground-numbers", "aria-hidden": "true" });
  const text = element("textarea", { id: "playground-manifest", wrap: "off", rows: 18, ...AS_TYPED });
  const sentence = element("p", { className: "playground-sentence", role: "status" });
  const list = element("ol", { className: "playground-findings", ariaLabel: "What was found" });
  const diffs = element("div", { className: "playground-diffs" });
  const panel = element(
    "section",
    {},
    element("p", {}, element("label", { htmlFor: choice.id }, "Sample"), " ", choice),
    element("label", { htmlFor: text.id }, "Manifest"),
    element("div", { className: "playground-editor" }, numbers, text),
    sentence,
    list,
    diffs,
  );

  const scroll = () => (numbers.scrollTop = text.scrollTop);
  const number = (marked) => {
    const count = text.value.split("\n").length;
    const lines = [];
    let [from, plain] = [1, ""];
    for (; from <= count; from++) {
      if (!marked.has(from)) {
        plain += `${from}\n`;
        continue;
      }
      lines.push(plain, element("b", { "data-level": marked.get(from) }, `! ${from}`), "\n");
      plain = "";
    }
    numbers.replaceChildren(...lines, plain);
    scroll();
  };
  const go = (line) => {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, it) => sum + it.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    const height = parseFloat(getComputedStyle(text).lineHeight);
    text.scrollTop = Math.max(0, (line - 4) * height);
    scroll();
  };
  const place = (line) =>
    line === null ? [] : [element("button", { type: "button", onclick: () => go(line) }, `line ${line}`), " "];

  const show = (answer, value) => {
    const { findings = [], failed } = answer;
    const marked = new Map(findings.toReversed().map(({ line, level }) => [line, level]));
    number(marked);
    // What is printed of no line: notes, and the count of results.
    const lines = `${answer.errors}${answer.text}`.split("\n").filter((line) => line && !/^(error: )?-:\d/.test(line));
    sentence.textContent = failed ?? lines.map((line) => line.replace(/^-: /, "")).join("; ");
    list.replaceChildren(
      ...findings.map(({ level, line, text }) =>
        element("li", { "data-level": level }, ...place(line), element("strong", {}, LEVELS[level]), element("span", {}, text)),
      ),
    );
    diffs.replaceChildren(...(answer.diffs ?? []).flatMap(difference));
    answered(panel, { asked: value, answer });
  };
  const ask = latest((manifest) => run(program, { admit: { manifest, now: Date.now() } }), show);
  const changed = () => {
    number(new Map());
    ask(text.value);
  };
  text.addEventListener("input", changed);
  text.addEventListener("scroll", scroll);
  choice.addEventListener("change", () => {
    text.value = samples[choice.value].text;
    text.scrollTop = 0;
    changed();
  });
  // A bad one shows more.
  const first = samples.findIndex(({ file }) => file.startsWith("bad/"));
  choice.value = Math.max(first, 0);
  choice.dispatchEvent(new Event("change"));
  return panel;
}

// What the webhook adds to an object.
function difference({ kind, name, line, unified }) {
  const title = `Defaults of ${kind} "${name ?? ""}", line ${line}`;
  const lines = unified.split("\n").filter(Boolean);
  const rows = lines.map((row) => element({ "+": "ins", "-": "del" }[row[0]] ?? "span", {}, `${row}\n`));
  return [
    element("h2", {}, title),
    element("pre", { className: "playground-diff", tabIndex: 0, role: "region", ariaLabel: title }, ...rows),
  ];
}

function times(program) {
  const words = element("input", { id: "playground-timespec", type: "text", value: "teatime fri", ...AS_TYPED });
  const answers = element("div", { role: "status", className: "playground-time" });
  const panel = element(
    "section",
    {},
    element("label", { htmlFor: words.id }, "Timespec"),
    element("p", {}, words),
    answers,
  );
  const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
  const show = ({ means, error, failed }, { timespec, zone }) => {
    const rows = means && [
      ["It means", `${means.local}, ${means.relative}`],
      ["In an At, in UTC", `schedule: ${means.schedule}`],
      ["Time zone", zone],
    ];
    const list = () => element("dl", {}, ...rows.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
    answers.replaceChildren(rows ? list() : element("p", {}, element("strong", {}, "error: "), error ?? failed));
    answered(panel, { asked: timespec, answer: { means, error, failed } });
  };
  const ask = latest(({ timespec, zone }) => run(program, { at: { timespec, zone, now: Date.now() } }), show);
  const changed = () => ask({ timespec: words.value, zone: zone() });
  words.addEventListener("input", changed);
  // Much time may have passed since "in 2 h".
  document.addEventListener("visibilitychange", () => document.hidden || changed());
  changed();
  return panel;
}

// Tabs as the WAI-ARIA practices have them: arrows go from one to the next.
function tabs(panels) {
  const made = Object.entries(panels).map(([name, panel], index) => {
    const tab = element("button", { type: "button", role: "tab", id: `playground-tab-${index}` }, name);
    panel.id = `playground-panel-${index}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", panel.id);
    return { tab, panel };
  });
  const choose = (chosen) => {
    for (const { tab, panel } of made) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      panel.hidden = tab !== chosen;
    }
  };
  for (const [index, { tab }] of made.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = made[(index + step + made.length) % made.length].tab;
      choose(next);
      next.focus();
    });
  }
  choose(made[0].tab);
  const list = element("div", { className: "playground-tabs", role: "tablist", ariaLabel: "Playground" }, ...made.map(({ tab }) => tab));
  return [list, ...made.map(({ panel }) => panel)];
}

async function start(place) {
  const answer = await fetch(new URL("playground.wasm", import.meta.url));
  if (!answer.ok) throw new Error(`this copy of the site was built without it (${answer.status})`);
  const program = await WebAssembly.compile(await answer.arrayBuffer());
  const samples = await run(program, "samples");
  place.replaceChildren(...tabs({ Manifests: manifests(program, samples), Timespecs: times(program) }));
  // mdBook turns pages with the arrow keys, and searches with others.
  place.addEventListener("keydown", (event) => event.stopPropagation());
}

const place = document.getElementById("playground-app");
start(place).catch(({ message }) => place.append(element("p", { role: "alert" }, `The playground does not run: ${message}.`)));
