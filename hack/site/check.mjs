// node check.mjs SITE AXE PROGRAMS: serves the folder of the site on loopback, opens each page in headless Chromium, light and dark,
// wide and narrow, and prints one line for each finding: page, mode, rule, element. SHOTS=FOLDER keeps pictures of the pages
// that ONLY, a regular expression, matches. The playground is compared with the programs in the folder PROGRAMS
// (playground.mjs; SEED repeats its manifests).
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "./chromium.mjs";
import { axeFindings, facts } from "./page.mjs";
import { PLAYGROUND, compareManifests, compareTimes, operate, sampleFiles, seeded, states } from "./playground.mjs";

const [site, axe, programs] = [resolve(process.argv[2]), readFileSync(process.argv[3], "utf8"), resolve(process.argv[4])];
const checkout = fileURLToPath(new URL("../..", import.meta.url));
const { CHROMIUM = "chromium", SHOTS, ONLY = "", SEED = String(Date.now() % 1_000_000) } = process.env;
const SECONDS = 1200;
const TABS = 3;
// A page that shows what the search finds.
const SEARCH = "index.html?search=maxUnavailable";
const MODES = ["light", "dark"].flatMap((scheme) => [1280, 390].map((width) => ({ scheme, width })));

const TYPES = {
  ".css": "text/css",
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".woff2": "font/woff2",
};

const findings = new Set();
const found = (...parts) => findings.add(parts.join(": ").replaceAll(`${origin}/`, "/"));

const files = readdirSync(site, { recursive: true }).map((file) => file.split(sep).join("/"));
const pages = files.filter((file) => file.endsWith(".html") && file !== "toc.html");
const pictures = files.filter((file) => file.endsWith(".svg"));

const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
  // Of a picture that is opened alone, Chromium asks for one.
  if (path === "/favicon.ico") {
    response.writeHead(204).end();
    return;
  }
  // As if two versions were published.
  if (path === "/versions.json") {
    response.writeHead(200, { "content-type": "application/json" });
    response.end('[{"version": "0.2.0", "url": "/0.2.0/"}, {"version": "0.1.0", "url": "/"}]');
    return;
  }
  const file = join(site, path.endsWith("/") ? `${path}index.html` : path);
  if (!file.startsWith(site + sep) || !extname(file) || !existsSync(file)) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" });
  response.end(readFileSync(file));
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const origin = `http://127.0.0.1:${server.address().port}`;
const browser = launch(CHROMIUM);

process.on("exit", browser.close);
const fail = (error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
};
process.on("uncaughtException", fail);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));
setTimeout(() => fail(new Error(`not done after ${SECONDS} s`)), SECONDS * 1000).unref();

// What a page reports while it is open, as a finding.
function reported(where, method, params) {
  if (method === "Runtime.exceptionThrown") found(where, "exception", params.exceptionDetails.exception?.description);
  if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type))
    found(where, "console", params.args.map((arg) => arg.value ?? arg.description).join(" "));
  if (method === "Log.entryAdded" && params.entry.level === "error") found(where, "console", params.entry.text);
  if (method === "Network.requestWillBeSent" && !/^(data|blob):/.test(params.request.url)) {
    if (!params.request.url.startsWith(`${origin}/`)) found(where, "request to another host", params.request.url);
  }
  if (method === "Network.responseReceived" && params.response.status >= 400)
    found(where, `status ${params.response.status}`, params.response.url);
}

// The links and headings of each page that was opened.
const opened = new Map();

async function check(tab, page, { scheme, width }) {
  const where = `${page}: ${scheme}, ${width} px`;
  const height = 800;
  await tab.ask("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  await tab.ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  tab.where = where;
  await tab.open(`${origin}/${page}`);
  await tab.value(`${axe};0`);
  const look = async (where, name) => {
    const seen = await tab.value(`(${facts})(${width}, ${height})`);
    opened.set(page, seen);
    for (const finding of seen.findings) found(where, finding);
    if (seen.dark !== (scheme === "dark")) found(where, "theme", `the page is ${seen.dark ? "dark" : "light"}`);
    for (const { rule, target, why } of await tab.value(`(${axeFindings})()`)) found(where, rule, target, why);
    if (SHOTS) await shoot(tab, name, scheme, width);
  };
  if (page !== PLAYGROUND) return look(where, page);
  for (const [state, bring] of states) {
    await bring(tab);
    await look(`${where}, ${state}`, `${page}-${state}`);
  }
}

async function shoot(tab, page, scheme, width) {
  const { data } = await tab.ask("Page.captureScreenshot", { format: "png" });
  mkdirSync(SHOTS, { recursive: true });
  writeFileSync(join(SHOTS, `${page.replaceAll("/", "_")}-${scheme}-${width}.png`), Buffer.from(data, "base64"));
}

// A picture alone, for a reader who wants no motion.
async function checkPicture(tab, picture) {
  tab.where = picture;
  await tab.open(`${origin}/${picture}`);
  if (await tab.value("document.getAnimations().length")) found(picture, "it moves, although the reader wants no motion");
}

// Where links lead: to a page and heading of the site, or a file of the checkout. Which pages they reach.
function followed() {
  const home = opened.get("index.html")?.repository;
  const reached = new Set(["index.html"]);
  for (const page of reached) {
    for (const href of opened.get(page)?.links ?? []) {
      const to = new URL(href);
      const file = decodeURIComponent(to.pathname.slice(1)) || "index.html";
      const part = decodeURIComponent(to.hash.slice(1));
      const inCheckout = home && href.startsWith(home) && /^\/(?:blob|edit|tree)\/main\/([^#]*)/.exec(href.slice(home.length));
      if (inCheckout && !existsSync(join(checkout, inCheckout[1]))) found(page, "link", href, "no such file");
      if (to.origin !== origin) continue;
      if (!files.includes(file)) found(page, "link", href, "no such page");
      else if (part && opened.has(file) && !opened.get(file).ids.includes(part)) found(page, "link", href, "no such heading");
      if (opened.has(file)) reached.add(file);
    }
  }
  for (const page of pages) {
    if (!reached.has(page) && page !== "404.html") found(page, "no link leads there from the front page");
  }
}

async function work(tasks) {
  let tab;
  tab = await browser.tab((method, params) => tab && reported(tab.where, method, params));
  for (let task = tasks.shift(); task; task = tasks.shift()) await task(tab);
}

try {
  const chosen = pages.filter((page) => new RegExp(ONLY).test(page));
  const tasks = chosen.flatMap((page) => MODES.map((mode) => (tab) => check(tab, page, mode)));
  tasks.push(...MODES.map((mode) => (tab) => check(tab, SEARCH, mode)));
  if (!ONLY) tasks.push(...pictures.map((picture) => (tab) => checkPicture(tab, picture)));
  const count = tasks.length;
  if (chosen.includes(PLAYGROUND)) {
    const url = `${origin}/${PLAYGROUND}`;
    const differs = (what) => found(PLAYGROUND, what);
    const texts = seeded(sampleFiles(join(checkout, "config/samples")), Number(SEED));
    tasks.unshift((tab) => compareManifests(tab, url, join(programs, "my-operator"), texts, differs));
    tasks.unshift((tab) => operate(tab, url, differs));
    tasks.unshift((tab) => compareTimes(tab, url, join(programs, "kubectl-at"), differs));
    console.log(`the playground is compared with SEED=${SEED}`);
  }
  await Promise.all(Array.from({ length: TABS }, () => work(tasks)));
  if (!ONLY) followed();
  for (const finding of [...findings].sort()) console.error(finding);
  console.log(`${chosen.length} pages were opened, ${count} times in all: ${findings.size} findings`);
  if (chosen.length < 50 && !ONLY) throw new Error(`the site has only ${chosen.length} pages`);
} catch (error) {
  fail(error);
}
process.exit(findings.size ? 1 : 0);
