// What check.mjs asks of a page, in the page: functions that use nothing from outside of themselves.

// What of the page does not fit into the width, and where its links and headings are.
export async function facts(width, height) {
  await document.fonts.ready;
  const findings = [];
  const main = document.querySelector("main");
  if (location.search) {
    const isEmpty = () => !document.querySelector("#mdbook-searchresults li");
    for (let tries = 100; isEmpty() && tries > 0; tries--) await new Promise((next) => setTimeout(next, 100));
    if (isEmpty()) findings.push("the search finds nothing");
  }
  const name = (element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${element.localName}${element.className && ` class="${element.className}"`}> ${text}`;
  };
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  // Elements of the text that stick out, unless what they are in scrolls by itself.
  const inScroller = (element) => {
    for (let at = element.parentElement; at !== main; at = at.parentElement) if (scrolls(at)) return true;
    return false;
  };
  const out = [...main.querySelectorAll("*")].find((element) => {
    const { right, left } = element.getBoundingClientRect();
    return right > left && (right > width + 1 || left < -1) && !inScroller(element);
  });
  if (out) findings.push(`wider than the screen: ${name(out)}`);
  for (let at = main; at; at = at.parentElement) {
    if (at.scrollWidth > Math.max(at.clientWidth, width) + 1) findings.push(`scrolls sideways: <${at.localName} id="${at.id}">`);
  }
  for (const image of document.images) {
    if (!image.complete || !image.naturalWidth) findings.push(`picture does not load: ${image.src}`);
  }
  // A transition that is as good as none may still be there.
  const moving = document.getAnimations().find((animation) => animation.effect.getComputedTiming().activeDuration > 1);
  if (moving) findings.push(`moves, although the reader wants no motion: ${name(moving.effect.target)}`);

  if (!location.search && location.pathname === "/index.html" && width > 600) {
    for (const what of ["main img", "main pre"]) {
      const bottom = document.querySelector(what)?.getBoundingClientRect().bottom;
      if (!(bottom <= height)) findings.push(`the first screen does not show ${what}: it ends at ${bottom} px`);
    }
  }
  if (!location.pathname.endsWith("/404.html")) {
    for (const link of ['a[rel~="edit"]', 'a[rel~="next"], a[rel~="prev"]'])
      if (!document.querySelector(link)) findings.push(`no link ${link}`);
  }
  return {
    findings,
    dark: getComputedStyle(document.documentElement).colorScheme === "dark",
    repository: document.querySelector('a[title="Git repository"]')?.href,
    links: [...document.querySelectorAll("a[href]")].map((a) => a.href),
    ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
  };
}

// What axe-core finds that keeps readers from the text.
export async function axeFindings() {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return serious.flatMap(({ id, nodes }) =>
    nodes.map((node) => ({
      rule: id,
      target: node.target.flat().join(" "),
      why: [...node.any, ...node.all, ...node.none][0]?.message ?? "",
    })),
  );
}
