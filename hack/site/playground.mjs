// The page of the playground: its states, and whether it says what the programs say.
import { execFile } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";

export const PLAYGROUND = "playground.html";
const RANDOM = 200;
// Between two answers a second may pass, which some show.
const TRIES = 5;

// In the page: gives a field this text, and returns the answer and what is shown of it.
async function enter(id, text) {
  for (let tries = 100; !document.getElementById(id) && tries > 0; tries--) await new Promise((next) => setTimeout(next, 100));
  const field = document.getElementById(id);
  if (!field) throw new Error(document.getElementById("playground-app")?.textContent ?? "there is no playground");
  const panel = field.closest("[role=tabpanel]");
  document.getElementById(panel.getAttribute("aria-labelledby")).click();
  const event = new Promise((resolve) => panel.addEventListener("answered", resolve, { once: true }));
  field.value = text;
  field.dispatchEvent(new Event("input"));
  const { asked, answer } = (await event).detail;
  const texts = (selector) => [...panel.querySelectorAll(selector)].map((found) => found.textContent);
  const shown = {
    sentence: texts(".playground-sentence")[0],
    findings: [...panel.querySelectorAll("li")].map((item) => [
      item.querySelector("button")?.textContent.replace("line ", "") ?? "",
      item.querySelector("span").textContent,
    ]),
    marks: [...panel.querySelectorAll(".playground-numbers b")].map((mark) => mark.textContent.replace("! ", "")),
    diffs: texts(".playground-diff"),
    terms: texts("dd"),
    error: texts(".playground-time p")[0],
  };
  return { asked, answer, shown };
}

const type = (tab, id, text) => tab.value(`(${enter})(${JSON.stringify(id)}, ${JSON.stringify(text)})`);
const manifest = (tab, text) => type(tab, "playground-manifest", text);
const timespec = (tab, text) => type(tab, "playground-timespec", text);

const AT = "apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: At\nmetadata: {name: a}\nspec:\n";
const LONG = "x".repeat(300);

// How the page is looked at: by name, what brings it there.
export const states = [
  ["defaults", (tab) => manifest(tab, `${AT}  schedule: 2020-01-01T00:00:00Z\n  command: ls\n`)],
  ["faults", (tab) => manifest(tab, `${AT}  schedule: ${LONG}\n  ${LONG}: 1\n---\nkind: [\n`)],
  ["time", (tab) => timespec(tab, "teatime fri")],
  ["no time", (tab) => timespec(tab, `teatme ${LONG}`)],
];

// What is large or deep: a browser has less memory, and less of a stack.
const HARD = [
  "",
  "[".repeat(100_000),
  `${AT}  template: ${"{a: ".repeat(90)}${"}".repeat(90)}\n`,
  `${AT}  template: ${"[".repeat(110)}${"]".repeat(110)}\n`,
  `a: &a [x]\n${Array.from("bcdefghij", (name, i) => `${name}: &${name} [${`*${"abcdefghi"[i]}, `.repeat(9)}]`).join("\n")}\n`,
  `${AT}  command: ${"x".repeat(1_000_000)}\n`,
  `${AT}---\n`.repeat(300),
  `${AT}  schedule: now\n  command: ls\n  shell: [${"bash, ".repeat(20_000)}]\n`,
];

// The manifests below a folder.
export function sampleFiles(folder) {
  const files = readdirSync(folder, { recursive: true }).filter((file) => file.endsWith(".yaml"));
  return files.sort().map((file) => readFileSync(join(folder, file), "utf8"));
}

// The samples, and random manifests made of them: the same for the same seed.
export function seeded(samples, seed) {
  let state = seed >>> 0;
  // mulberry32
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (count) => Math.floor(random() * count);
  const one = (list) => list[below(list.length)];
  const values = ["true", "yes", "12", "-1", "0", "1e99", "0755", "0.5", "[]", "{}", "null", "~", '""', '"x"', "*a", "!!str 5", ">-", "100%"];
  values.push("2020-01-01T00:00:00Z", "now + 5 minutes", "[a, {b: c}]", "99999999999999999999", "!!binary eA==", "&a b", "500 lightyears");
  const hostile = ["<script>alert(1)</script>", "\u202egnp.exe", "\u0007\u001b[31m", "::error::x", "##[error]x", "\u00e9\u{1f600}", "a".repeat(5000)];
  hostile.push("\u2028", "&amp;\"'`", "${x}", "../../etc/passwd", "\u0000");
  const broken = ["  - [", "\t- x", "'", '"', "{{ .Values.x }}", "%YAML 1.3", "...", "? x", ": :", "key: value: x", "- -", "<<: *b", "!!python/x y"];
  const kinds = ["kind: Nope", "kind: AtList", "kind: ConfigMap", "kind: at", "apiVersion: v1", "apiVersion: apps/v1", "apiVersion: cnat.programming-kubernetes.info/v2", "apiVersion: cnat.programming-kubernetes.info"];
  const field = /^(\s*(?:- )?)([^\s:#-][^:]*):( ?)(.*)$/;
  const at = (lines, change) => {
    const index = below(lines.length);
    lines.splice(index, 1, ...[change(lines[index])].flat());
  };
  const changes = [
    ...Array(3).fill((lines) => at(lines, () => [])),
    (lines) => at(lines, (line) => [line, line]),
    (lines) => at(lines, (line) => line.replace(field, (_, before, name, blank, value) => `${before}${name.slice(1)}${name[0]}:${blank}${value}`)),
    (lines) => at(lines, (line) => line.replace(field, (_, before, name, blank, value) => `${before}${one(["x", "", "status", "namespace", "image"])}:${blank}${value}`)),
    ...Array(6).fill((lines) => at(lines, (line) => line.replace(field, (all, before, name, blank, value) => (value ? `${before}${name}: ${one(values)}` : all)))),
    (lines) => at(lines, (line) => line.replace(field, (all, before, name, blank, value) => (value ? `${before}${name}: ${one(hostile)}` : all))),
    (lines) => at(lines, (line) => line.replace(field, (all, before, name, blank, value) => (value ? `${before}${name}: ${JSON.stringify(one(hostile))}` : all))),
    (lines) => at(lines, (line) => line.replace(field, (_, before, name, blank, value) => `${before}${one(hostile)}:${blank}${value}`)),
    (lines) => at(lines, (line) => one(["  ", " "]) + line),
    (lines) => at(lines, (line) => line.replace(/^ {1,2}/, "")),
    (lines) => at(lines, (line) => [line, one(broken)]),
    (lines) => at(lines, (line) => [line, "---"]),
    (lines) => lines.push("---", ...one(samples).split("\n")),
    (lines) => lines.splice(0, lines.length, ...lines.map((line) => (/^(kind|apiVersion):/.test(line) && random() < 0.5 ? one(kinds) : line))),
    (lines) => lines.splice(0, lines.length, "apiVersion: v1", "kind: List", "items:", ...lines.map((line, i) => (i ? "  " : "- ") + line)),
    (lines) => lines.splice(below(lines.length), lines.length),
  ];
  const mutated = () => {
    const lines = one(samples).split("\n");
    for (let count = 1 + below(3); count > 0; count--) {
      if (!lines.length) lines.push("");
      one(changes)(lines);
    }
    return lines.join("\n");
  };
  return [...samples, ...HARD, ...Array.from({ length: RANDOM }, mutated)];
}

// What a program prints, and its exit code.
function ran(program, args, { input = "", env = {} } = {}) {
  return new Promise((resolve, reject) => {
    const options = { env: { HOME: "/nonexistent", ...env }, maxBuffer: 2 ** 28 };
    const child = execFile(program, args, options, (error, out, errors) => {
      if (error && typeof error.code !== "number") reject(error);
      else resolve({ out, errors, code: error?.code ?? 0 });
    });
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

// Calls `differs` with each manifest of which the page does not say and show what `my-operator admit` prints.
export async function compareManifests(tab, url, program, texts, differs) {
  tab.where = `${PLAYGROUND}: as my-operator admit`;
  await tab.open(url);
  const outcomes = { accepted: 0, refused: 0, passedOver: 0, unreadable: 0 };
  for (const text of texts) {
    let wrong;
    for (let tries = 0; tries < TRIES && wrong !== ""; tries++) {
      const { asked, answer, shown } = await manifest(tab, text);
      const [json, plain] = await Promise.all([
        ran(program, ["admit", "-f", "-", "-o", "json", "--show-patch"], { input: text }),
        ran(program, ["admit", "-f", "-"], { input: text }),
      ]);
      const report = JSON.parse(json.out);
      wrong = manifestDiffers(text, asked, answer, shown, json, plain, report);
      if (!wrong) for (const outcome of Object.keys(outcomes)) outcomes[outcome] += report.summary[outcome];
    }
    if (wrong) differs(`not as my-operator admit: ${wrong}: ${JSON.stringify(text.slice(0, 3000))}`);
  }
  // Texts that all break in the same way would compare little.
  for (const [outcome, count] of Object.entries(outcomes)) if (count < 3) differs(`only ${count} manifests are ${outcome}`);
  console.log(`the playground answers as my-operator admit: ${texts.length} manifests, of which ${JSON.stringify(outcomes)}`);
}

function manifestDiffers(text, asked, answer, shown, json, plain, report) {
  if (asked !== text) return "the page has another text";
  const same = (what, ours, theirs) => (isDeepStrictEqual(ours, theirs) ? "" : `${what}: ${JSON.stringify(ours)} instead of ${JSON.stringify(theirs)}`);
  // Where it stands: line, column, document and item.
  const place = /^(?:error: )?-:(\d+)(?::\d+)?: document \d+(?:, items[^:]*)?: /;
  const lines = `${plain.errors}${plain.out}`.split("\n").filter(Boolean);
  const placed = lines.filter((line) => place.test(line)).map((line) => [place.exec(line)[1], line.replace(place, "")]);
  const rest = lines.filter((line) => !place.test(line)).map((line) => line.replace(/^-: /, ""));
  const sorted = (list) => list.map((it) => JSON.stringify(it)).sort();
  const defaulted = report.results.filter(({ patch }) => patch?.length);
  return (
    same("exit code", answer.code, json.code) ||
    same("report", answer.report, report) ||
    same("text", answer.text, plain.out) ||
    same("standard error", answer.errors, json.errors) ||
    same("standard error of the text", answer.errors, plain.errors) ||
    same("shown findings", sorted(shown.findings), sorted(placed)) ||
    same("shown sentence", shown.sentence, rest.join("; ")) ||
    same("marked lines", shown.marks.map(Number), [...new Set(placed.map(([line]) => Number(line)))].sort((a, b) => a - b)) ||
    same("shown diffs", shown.diffs.length, defaulted.length)
  );
}

// Calls `differs` where the keyboard, or a browser without WebAssembly, does not get what the page promises.
export async function operate(tab, url, differs) {
  tab.where = `${PLAYGROUND}: by keyboard`;
  const press = async (key) => {
    for (const type of ["keyDown", "keyUp"]) await tab.ask("Input.dispatchKeyEvent", { type, key, code: key });
  };
  await tab.ask("Page.bringToFront");
  await tab.open(url);
  await manifest(tab, `${AT}  schedule: soon\n  command: ls\n`);
  await tab.value('document.querySelector("#playground-app li button").click()');
  const selected = await tab.value(`(() => {
    const { value, selectionStart, selectionEnd } = document.activeElement;
    return value?.slice(selectionStart, selectionEnd);
  })()`);
  if (selected !== "  schedule: soon") differs(`the button of a fault selects ${JSON.stringify(selected)}`);
  // Elsewhere on the site, these turn the page and open the search.
  for (const key of ["ArrowRight", "s", "/"]) await press(key);
  const focus = await tab.value("`${location.pathname} ${document.activeElement?.id}`");
  if (focus !== `/${PLAYGROUND} playground-manifest`) return differs(`keys lead from the text to ${focus}`);
  await tab.value('document.getElementById("playground-tab-0").focus()');
  await press("ArrowRight");
  const panel = await tab.value('document.activeElement.id + " " + [...document.querySelectorAll("[role=tabpanel]")].map((it) => it.hidden)');
  if (panel !== "playground-tab-1 true,false") differs(`the arrow leads from the first tab to ${panel}`);
  const script = await tab.ask("Page.addScriptToEvaluateOnNewDocument", { source: "delete globalThis.WebAssembly" });
  await tab.open(url);
  const said = await tab.value(`new Promise((resolve) => {
    const place = document.getElementById("playground-app");
    const look = () => (place.querySelector("[role=alert]") ? resolve(place.textContent) : setTimeout(look, 100));
    look();
    setTimeout(() => resolve(place.textContent), 10_000);
  })`);
  if (!/needs JavaScript and WebAssembly.*does not run: WebAssembly is not defined\./s.test(said)) differs(`without WebAssembly it says ${said}`);
  await tab.ask("Page.removeScriptToEvaluateOnNewDocument", { identifier: script.identifier });
}

const ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"];
const TIMES = [
  "now", "teatime", "teatime fri", "16:00 tomorrow", "noon + 3 days", "9am nov 24", "now + 5 minutes", "midnight", "00:30 utc",
  "next week", "16:00 + 1 month", "5m", "1h30m", "2027-07-01T16:00:00Z", "2027-07-01T16:00", "12:00 dec 30 2029",
  // Clocks are changed.
  "2:30 mar 28 2027", "2:30 oct 31 2027", "2027-03-28T02:30", "2027-10-31T02:30", "2:30 mar 14 2027", "1:30 nov 7 2027",
  "2027-03-14T02:30", "2:15 oct 3 2027", "1:45 apr 4 2027", "2:00 mar 27 2027 + 1 day", "0:01 mar 14 2027",
  // No times.
  "16:00 tommorow", "25:00", "noon feb 30 2027", "noon jan 1 1999", "9999-06-01T00:00:00Z", "2026-13-01T16:00:00Z", "<b>noon</b>",
  "noon\u202e", "999999999h", "1 month", "noon days",
];

// The same for times, in several time zones, and `kubectl at`.
export async function compareTimes(tab, url, program, differs) {
  tab.where = `${PLAYGROUND}: as kubectl at`;
  for (const zone of ZONES) {
    await tab.ask("Emulation.setTimezoneOverride", { timezoneId: zone });
    await tab.open(url);
    for (const words of TIMES) {
      let wrong;
      for (let tries = 0; tries < TRIES && wrong !== ""; tries++) {
        const { answer, shown } = await timespec(tab, words);
        const kubectl = (...flags) => ran(program, [words, "--dry-run=client", ...flags, "--", "true"], { env: { TZ: zone } });
        const [yaml, plain] = await Promise.all([kubectl("-o", "yaml"), kubectl()]);
        wrong = timeDiffers(answer, shown, yaml, plain);
      }
      if (wrong) differs(`not as kubectl at in ${zone}: ${JSON.stringify(words)}: ${wrong}`);
    }
  }
  await tab.ask("Emulation.setTimezoneOverride", { timezoneId: "" });
  console.log(`the playground answers as kubectl at: ${TIMES.length} timespecs in ${ZONES.length} time zones`);
}

function timeDiffers({ means }, shown, yaml, plain) {
  // The zone may have another name in a browser: Asia/Calcutta.
  const ours = means ? [means.schedule, ...shown.terms.slice(0, -1)] : [shown.error];
  const schedule = /^ {2}schedule: "?([^"\n]*)"?$/m.exec(yaml.out)?.[1];
  const local = / would run (.*) \(dry run\)\n$/.exec(plain.out)?.[1];
  const theirs = schedule ? [schedule, local, `schedule: ${schedule}`] : [plain.errors.trimEnd()];
  // A time that is now has no more to say of it there.
  if (means?.schedule === "now" && local === "now") ours[1] = "now";
  return isDeepStrictEqual(ours, theirs) ? "" : `${JSON.stringify(ours)} instead of ${JSON.stringify(theirs)}`;
}
